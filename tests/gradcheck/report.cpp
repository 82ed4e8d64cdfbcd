#include "tests/gradcheck/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>

namespace chargrad::tests {
namespace {

std::string describe(const Subject& subject, const GradcheckResult& result) {
  std::string message = result.message();
  const size_t input = result.worst.input;
  if (input >= subject.names.size()) {
    return message;
  }
  const std::string number = fmt::format("input {}", input);
  return subject.names[input] + message.substr(number.size());
}

}  // namespace

Outcome run_case(const Case& c) {
  Outcome outcome;
  outcome.name = c.name;
  try {
    const Subject subject = c.make();
    const GradcheckResult result = gradcheck(subject.f, subject.inputs);
    outcome.passed = result.max_rel_error <= kMaxRelError;
    outcome.max_rel_error = result.max_rel_error;
    outcome.max_abs_error = result.max_abs_error;
    outcome.detail = outcome.passed ? "" : describe(subject, result);
  } catch (const std::exception& error) {
    outcome.max_rel_error = outcome.max_abs_error = std::numeric_limits<double>::infinity();
    outcome.detail = error.what();
  }
  return outcome;
}

bool all_passed(const std::vector<Outcome>& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [](const Outcome& outcome) { return outcome.passed; });
}

std::string line(const Outcome& outcome, size_t width) {
  std::string text =
      fmt::format("{:<{}}  {:>13.1e}  {:>13.1e}  {}", outcome.name, width, outcome.max_rel_error,
                  outcome.max_abs_error, outcome.passed ? "ok" : "FAIL");
  return outcome.detail.empty() ? text : text + "  " + outcome.detail;
}

std::string heading(size_t width) {
  return fmt::format("{:<{}}  max_rel_error  max_abs_error", "case", width);
}

std::string summary(const std::vector<Outcome>& outcomes, double seconds) {
  const auto failed = std::count_if(outcomes.begin(), outcomes.end(),
                                    [](const Outcome& outcome) { return !outcome.passed; });
  std::string worst;
  const auto by_error = [](const Outcome& a, const Outcome& b) {
    return a.max_rel_error < b.max_rel_error;
  };
  if (const auto found = std::max_element(outcomes.begin(), outcomes.end(), by_error);
      found != outcomes.end()) {
    worst = fmt::format(", worst {} {:.1e}", found->name, found->max_rel_error);
  }
  return fmt::format("{} case{}, {} failed{}, {:.1f} s", outcomes.size(),
                     outcomes.size() == 1 ? "" : "s", failed, worst, seconds);
}

std::string to_json(const std::vector<Outcome>& outcomes) {
  constexpr double kLargest = 1e300;
  std::string text;
  for (const Outcome& outcome : outcomes) {
    const nlohmann::ordered_json object = {
        {"case", outcome.name},
        {"passed", outcome.passed},
        {"max_rel_error", std::min(outcome.max_rel_error, kLargest)},
        {"max_abs_error", std::min(outcome.max_abs_error, kLargest)},
    };
    text += (text.empty() ? "\n" : ",\n") + object.dump();
  }
  return "[" + text + "\n]\n";
}

}  // namespace chargrad::tests
