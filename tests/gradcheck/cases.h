// What the gradcheck program checks: every row of the table of op cases, every module, and whole
// GPTs. The tests run over the same list.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/gradcheck.h"

namespace chargrad::tests {

// A function and the float64 inputs to check it at.
struct Subject {
  GradcheckFunction f;
  std::vector<Tensor> inputs;
  std::vector<std::string> names;  // of the inputs; empty where their numbers say enough
};

struct Case {
  std::string name;               // what is checked / variant: "softmax/last_dim"
  std::function<Subject()> make;  // the same numbers in each call
};

// The op rows, then the modules.
const std::vector<Case>& all_cases();

// The modules of nn/ and models/, by their parameters and inputs.
std::vector<Case> module_cases();

// What stands before the slash of a case's name.
std::string_view subject_of(std::string_view name);

}  // namespace chargrad::tests
