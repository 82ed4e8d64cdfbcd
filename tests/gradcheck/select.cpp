#include "tests/gradcheck/select.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "engine/check.h"
#include "train/nearest.h"

namespace chargrad::tests {
namespace {

// Whether `pattern`, with * and ?, fits the whole of `name`: the part up to a star must fit, and
// when a later part does not, the last star takes one character more.
bool fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// Asks for what a failed pattern was probably meant to be, if anything is near.
std::string hint(const std::vector<Case>& cases, std::string_view pattern) {
  std::vector<std::string_view> subjects;
  subjects.reserve(cases.size());
  for (const Case& candidate : cases) {
    subjects.push_back(subject_of(candidate.name));
  }
  const std::string_view near = train::nearest_name(subject_of(pattern), subjects);
  return near.empty() ? std::string() : "did you mean " + std::string(near) + "? ";
}

}  // namespace

std::vector<Case> select_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& patterns) {
  if (patterns.empty()) {
    return cases;
  }
  std::vector<bool> picked(cases.size(), false);
  for (const std::string& pattern : patterns) {
    const auto pick = [&](const std::function<bool(std::string_view)>& matches) {
      bool any = false;
      for (size_t i = 0; i < cases.size(); ++i) {
        if (matches(cases[i].name)) {
          picked[i] = any = true;
        }
      }
      return any;
    };
    const bool any =
        pattern.find_first_of("*?") != std::string::npos
            ? pick([&](std::string_view name) { return fits(pattern, name); })
            : !pattern.empty() && (pick([&](std::string_view name) {
                                     return name == pattern || subject_of(name) == pattern;
                                   }) ||
                                   pick([&](std::string_view name) {
                                     return name.find(pattern) != std::string_view::npos;
                                   }));
    CHARGRAD_CHECK(any, "gradcheck: no case matches '", pattern, "'; ", hint(cases, pattern),
                   "--list names the cases");
  }
  std::vector<Case> selected;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (picked[i]) {
      selected.push_back(cases[i]);
    }
  }
  return selected;
}

}  // namespace chargrad::tests
