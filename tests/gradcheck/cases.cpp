#include "tests/gradcheck/cases.h"

#include <iterator>
#include <string_view>

#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    for (const OpCase& row : op_cases()) {
      cases.push_back({row.name, [&row] { return Subject{row.f, make_inputs(row), {}}; }});
    }
    std::vector<Case> modules = module_cases();
    std::move(modules.begin(), modules.end(), std::back_inserter(cases));
    return cases;
  }();
  return all;
}

std::string_view subject_of(std::string_view name) {
  return name.substr(0, name.find('/'));
}

}  // namespace chargrad::tests
