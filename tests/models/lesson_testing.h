// What the tests of the attention ladder share: the six tokens, reference numbers, comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/ops.h"

namespace chargrad {

// "The cat sat on the mat": the lesson's six embeddings. (6, 3)
inline Tensor six_tokens() {
  return tensor({{0.43, 0.15, 0.89},
                 {0.55, 0.87, 0.66},
                 {0.57, 0.85, 0.64},
                 {0.22, 0.58, 0.33},
                 {0.77, 0.25, 0.10},
                 {0.05, 0.80, 0.55}});
}

inline double max_difference(const Tensor& a, const Tensor& b) {
  return amax(abs(a - b)).item();
}

// Compares with numbers printed to some digits: off by at most one unit of the last one.
inline void expect_printed(const Tensor& x, const std::vector<double>& printed, double unit) {
  const std::vector<double> values = x.to_vector<double>();
  ASSERT_EQ(values.size(), printed.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(values[i] - printed[i]), unit) << "element " << i << ": " << values[i];
  }
}

// The shared reference file of the lessons, from CHARGRAD_SHARED.
inline bool has_seeds_reference() {
  return std::getenv("CHARGRAD_SHARED") != nullptr;
}

inline const nlohmann::json& seeds_reference() {
  static const nlohmann::json reference = [] {
    std::ifstream file(std::string(std::getenv("CHARGRAD_SHARED")) + "/reference/seeds.json");
    return nlohmann::json::parse(file);
  }();
  return reference;
}

// The numbers of nested arrays, in order.
inline std::vector<double> numbers_of(const nlohmann::json& value) {
  if (!value.is_array()) {
    return {value.get<double>()};
  }
  std::vector<double> numbers;
  for (const nlohmann::json& item : value) {
    for (const double number : numbers_of(item)) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

// Numbers of the reference have nine digits and came from float32: what the engine may differ by
// is the rounding of sums in another order, at most one unit of 2^-24 times the largest number for
// each of the `terms` additions and products behind an element.
inline void expect_reference(const Tensor& x, const nlohmann::json& value, int terms = 16) {
  const std::vector<double> expected = numbers_of(value), values = x.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0;
  for (const double number : expected) {
    largest = std::max(largest, std::abs(number));
  }
  const double tolerance = terms * 0x1p-24 * std::max(largest, 0.1);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
  }
}

}  // namespace chargrad
