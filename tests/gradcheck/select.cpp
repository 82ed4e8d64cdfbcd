#include "tests/gradcheck/select.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>

#include "engine/check.h"

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

// Characters to insert, delete or replace to make one text of the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string nearest_subject(const std::vector<Case>& cases, std::string_view pattern) {
  constexpr size_t kLongest = 100;  // longer words are no typing mistakes
  std::string nearest;
  size_t best = kLongest;
  const std::string_view typed = subject_of(pattern.substr(0, kLongest));
  for (const Case& candidate : cases) {
    const std::string_view subject = subject_of(candidate.name);
    if (const size_t distance = edit_distance(typed, subject); distance < best) {
      best = distance;
      nearest = subject;
    }
  }
  return nearest;
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
    CHARGRAD_CHECK(any, "gradcheck: no case matches '", pattern, "'; did you mean ",
                   nearest_subject(cases, pattern), "? --list names the cases");
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
