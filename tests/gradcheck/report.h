// Running a case, and what is said about it. Nothing here prints.
#pragma once

#include <string>
#include <vector>

#include "tests/gradcheck/cases.h"

namespace chargrad::tests {

// What max_rel_error may be: central differences in double reach 1e-9 to 1e-7, and a gradient
// that is 1 % wrong in an element gives about 1e-2.
inline constexpr double kMaxRelError = 1e-6;

struct Outcome {
  std::string name;
  bool passed = false;
  double max_rel_error = 0;
  double max_abs_error = 0;
  std::string detail;  // of a failure: the worst element, or what was thrown
};

// Checks the case. An exception is a failure too, with infinite errors.
Outcome run_case(const Case& c);

bool all_passed(const std::vector<Outcome>& outcomes);

// "softmax/last_dim   1.2e-10  3.1e-11  ok", the name padded to `width`.
std::string line(const Outcome& outcome, size_t width);
// The heading of the lines.
std::string heading(size_t width);
// "212 cases, 0 failed, worst gpt/two_layers 3.1e-08, 9.1 s".
std::string summary(const std::vector<Outcome>& outcomes, double seconds);
// An array of {"case", "passed", "max_rel_error", "max_abs_error"}, one object a line. JSON has no
// infinity: 1e300 stands for it.
std::string to_json(const std::vector<Outcome>& outcomes);

}  // namespace chargrad::tests
