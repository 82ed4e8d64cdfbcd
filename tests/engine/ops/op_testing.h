// What the op tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/ops.h"

namespace chargrad::tests {

inline std::vector<double> values(const Tensor& x) {
  return x.to_vector<double>();
}

// Matches a list whose elements are within `tolerance` of `want`.
inline auto near(const std::vector<double>& want, double tolerance) {
  return testing::Pointwise(testing::DoubleNear(tolerance), want);
}

// Matches a call that throws std::invalid_argument with exactly this text.
inline auto throws(const std::string& text) {
  return testing::ThrowsMessage<std::invalid_argument>(testing::Eq(text));
}

// The gradient of f at x, sent back from `dy` of f(x)'s shape.
inline Tensor gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x,
                       const Tensor& dy) {
  Tensor leaf = x.detach();
  leaf.set_requires_grad();
  f(leaf).backward(dy);
  return leaf.grad();
}

}  // namespace chargrad::tests
