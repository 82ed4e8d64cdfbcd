#include "tests/op_cases/op_cases.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "engine/ops.h"

namespace chargrad::tests {
namespace {

// The numbers come from the standard's own engine, so that a fault in the project's generator
// cannot hide one in an op; seeded by the name, so that rows do not shift each other.
std::vector<double> draw_values(Draw draw, int64_t n, std::mt19937_64& bits) {
  const auto uniform = [&bits] { return static_cast<double>(bits() >> 11) * 0x1p-53; };
  std::vector<double> values(static_cast<size_t>(n));
  if (draw == Draw::kSpread) {
    // +-0.1, +-0.15, +-0.2, ... in a random order, plus a little that keeps them apart.
    for (size_t i = 0; i < values.size(); ++i) {
      const double size = 0.1 + 0.05 * std::floor(static_cast<double>(i) / 2);
      values[i] = (i % 2 == 0 ? size : -size) * 1.01;
    }
    std::shuffle(values.begin(), values.end(), bits);
    return values;
  }
  for (double& value : values) {
    // Twelve uniforms make a normal number good enough for a test input.
    value = draw == Draw::kPositive ? 0.5 + 1.5 * uniform() : -6;
    for (int k = 0; draw == Draw::kNormal && k < 12; ++k) {
      value += uniform();
    }
  }
  return values;
}

// A tensor of this shape whose memory holds the last two dims in the other order, or one dim
// with gaps.
Tensor strided(const std::vector<double>& values, Shape shape, DType dtype) {
  if (shape.empty()) {
    return from_vector(values, shape, dtype);
  }
  if (shape.size() == 1) {
    std::vector<double> gapped(values.size() * 2, 123.0);
    for (size_t i = 0; i < values.size(); ++i) {
      gapped[2 * i] = values[i];
    }
    return slice(from_vector(gapped, {2 * shape[0]}, dtype), 0, 0, 2 * shape[0], 2);
  }
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return from_vector(values, shape, dtype).transpose(-1, -2);
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> rows;
    for (auto family :
         {elementwise_cases, activation_cases, reduce_cases, shape_cases, index_cases, matmul_cases,
          softmax_cases, norm_and_loss_cases, attention_cases, dropout_cases}) {
      std::vector<OpCase> more = family();
      std::move(more.begin(), more.end(), std::back_inserter(rows));
    }
    return rows;
  }();
  return all;
}

std::vector<Tensor> make_inputs(const OpCase& op_case, DType dtype) {
  std::seed_seq seed(op_case.name.begin(), op_case.name.end());
  std::mt19937_64 bits(seed);
  std::vector<Tensor> inputs;
  for (const Shape& shape : op_case.shapes) {
    const std::vector<double> values = draw_values(op_case.draw, numel_of(shape), bits);
    const NoGradGuard no_grad;
    Tensor x = op_case.layout == Layout::kStrided ? strided(values, shape, dtype)
                                                  : from_vector(values, shape, dtype);
    inputs.push_back(x.set_requires_grad());
  }
  return inputs;
}

}  // namespace chargrad::tests
