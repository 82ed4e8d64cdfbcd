#include "train/nearest.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace chargrad::train {
namespace {

// The fewest insertions, deletions, replacements and swaps of neighbours that lead from a to b.
int64_t edit_distance(std::string_view a, std::string_view b) {
  const size_t rows = a.size() + 1, cols = b.size() + 1;
  std::vector<int64_t> d(rows * cols);
  const auto at = [&d, cols](size_t i, size_t j) -> int64_t& { return d[i * cols + j]; };
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = static_cast<int64_t>(i + j);
        continue;
      }
      const int64_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return d.back();
}

// learning_rate -> lr.
std::string initials(std::string_view name) {
  std::string letters;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '_') {
      letters += name[i];
    }
  }
  return letters;
}

// Edit distance, but people also shorten a name to its initials and lengthen it by a word.
int64_t name_distance(std::string_view typed, std::string_view name) {
  if (typed.size() > 1 && typed == initials(name)) {
    return 1;
  }
  const int64_t distance = edit_distance(typed, name);
  const size_t common = std::min(typed.size(), name.size());
  const bool is_prefix = common >= 3 && typed.substr(0, common) == name.substr(0, common);
  return is_prefix ? std::min<int64_t>(distance, 2) : distance;
}

}  // namespace

std::string_view nearest_name(std::string_view typed, const std::vector<std::string_view>& names) {
  // Longer names are no typing mistakes, and the distance costs the product of the lengths.
  constexpr size_t kLongest = 64;
  if (typed.size() > kLongest) {
    return {};
  }
  // More than two changes in a short name, or as many as it has letters, make another name.
  const auto length = static_cast<int64_t>(typed.size());
  int64_t best = std::min(std::max<int64_t>(2, length / 2) + 1, length);
  std::string_view nearest;
  for (const std::string_view name : names) {
    const int64_t distance = name_distance(typed, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace chargrad::train
