// Every fused op beside its twin: the same function written with plain ops, whose gradient autograd
// composes. Values and gradients agree in float64 and, on every tier, in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/ops.h"

namespace chargrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.14159265358979323846;

// --- The twins -----------------------------------------------------------------------------------

Tensor twin_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor y = matmul(x, transpose(weight, 0, 1));
  return bias.defined() ? y + bias : y;
}

Tensor twin_softmax(const Tensor& x, int64_t dim) {
  const Tensor e = exp(x - amax(x.detach(), {dim}, /*keepdim=*/true));
  return e / sum(e, {dim}, /*keepdim=*/true);
}

Tensor twin_log_softmax(const Tensor& x, int64_t dim) {
  const Tensor shifted = x - amax(x.detach(), {dim}, /*keepdim=*/true);
  return shifted - log(sum(exp(shifted), {dim}, /*keepdim=*/true));
}

Tensor twin_cross_entropy(const Tensor& logits, const Tensor& target, int64_t ignore_index) {
  const Tensor ignored = eq(target, static_cast<double>(ignore_index));
  const Tensor index = unsqueeze(where(ignored, zeros_like(target), target), -1);
  const Tensor picked = squeeze(gather(twin_log_softmax(logits, -1), -1, index), -1);
  const double count = static_cast<double>(target.numel()) - sum(ignored).item();
  return neg(sum(masked_fill(picked, ignored, 0))) / count;
}

Tensor twin_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor centred = x - mean(x, {-1}, /*keepdim=*/true);
  const Tensor variance = mean(centred * centred, {-1}, /*keepdim=*/true);
  Tensor y = centred / sqrt(variance + eps);
  y = weight.defined() ? y * weight : y;
  return bias.defined() ? y + bias : y;
}

Tensor twin_gelu_tanh(const Tensor& x) {
  const Tensor cubed = x + pow(x, 3) * 0.044715;
  return x * 0.5 * (tanh(cubed * std::sqrt(2 / kPi)) + 1);
}

Tensor twin_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const AttentionOptions& options) {
  const double d = static_cast<double>(q.size(-1));
  Tensor scores = matmul(q, transpose(k, -1, -2)) * options.scale.value_or(1 / std::sqrt(d));
  Tensor hidden = zeros(scores.shape(), kBool);
  if (options.is_causal) {
    hidden = eq(tril(ones(scores.shape())), 0);
  } else if (options.attn_mask.defined() && options.attn_mask.dtype() == kBool) {
    hidden = eq(expand(options.attn_mask, scores.shape()), 0);
  } else if (options.attn_mask.defined()) {
    hidden = eq(expand(options.attn_mask, scores.shape()), -kInfinity);
    scores = scores + masked_fill(options.attn_mask, eq(options.attn_mask, -kInfinity), 0);
  }
  // Large and finite, so that a row that sees nothing is not a NaN before it is set to 0.
  Tensor weights = twin_softmax(masked_fill(scores, hidden, -1e30), -1);
  weights = masked_fill(weights, hidden, 0);
  weights = dropout(weights, options.dropout_p, /*training=*/true, options.key);
  return matmul(weights, v);
}

// The same from split, heads and the op on four dims, or its twin.
template <class Attention>
Tensor twin_packed(const Tensor& qkv, int64_t n_head, const AttentionOptions& options,
                   const Attention& attention) {
  const int64_t B = qkv.size(0), T = qkv.size(1), C = qkv.size(2) / 3;
  const std::vector<Tensor> parts = split(qkv, C, /*dim=*/2);
  const auto heads = [&](size_t i) {
    return reshape(parts[i], {B, T, n_head, C / n_head}).transpose(1, 2);  // (B, H, T, D)
  };
  return reshape(attention(heads(0), heads(1), heads(2), options).transpose(1, 2), {B, T, C});
}

// --- Comparing
// ------------------------------------------------------------------------------------

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

std::vector<Tensor> draw(const std::vector<Shape>& shapes, DType dtype) {
  Generator generator(42);
  std::vector<Tensor> inputs;
  inputs.reserve(shapes.size());
  for (const Shape& shape : shapes) {
    inputs.push_back(randn(shape, kFloat32, generator).to(dtype).set_requires_grad());
  }
  return inputs;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

// Both round differently: each makes an error of at most some 50 roundings (the longest sum) of
// half an epsilon of the largest number that takes part, which is at most about 8 here.
void expect_near(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  const double epsilon = got.dtype() == kFloat32 ? std::numeric_limits<float>::epsilon()
                                                 : std::numeric_limits<double>::epsilon();
  const double tolerance = 64 * epsilon * std::max(1.0, largest(b));
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], tolerance)
        << what << " at element " << i << " in " << dtype_name(got.dtype());
  }
}

void expect_twins(const Function& fused, const Function& twin, const std::vector<Shape>& shapes) {
  for (const DType dtype : {kFloat64, kFloat32}) {
    const std::vector<Tensor> inputs = draw(shapes, dtype);
    const Tensor y = fused(inputs), expected = twin(inputs);
    expect_near(y, expected, "value");
    Generator generator(43);
    const Tensor dy = randn(y.shape(), kFloat32, generator).to(dtype);
    const Grads dx = grad({y}, inputs, {dy}), expected_dx = grad({expected}, inputs, {dy});
    for (size_t i = 0; i < inputs.size(); ++i) {
      expect_near(dx[i], expected_dx[i], "gradient of input " + std::to_string(i));
    }
  }
}

// Odd sizes, so that vectors have a rest; and a single column.
const std::vector<Shape> kShapes = {{3, 5, 37}, {7, 16}, {2, 1}, {33}};

TEST(Twins, Linear) {
  using Sizes = std::array<int64_t, 3>;
  for (const auto& [rows, in, out] :
       {Sizes{6, 5, 4}, Sizes{1, 1, 1}, Sizes{13, 33, 17}, Sizes{2, 40, 65}}) {
    const auto with = [](const auto& t) { return linear(t[0], t[1], t[2]); };
    const auto without = [](const auto& t) { return linear(t[0], t[1]); };
    expect_twins(with, [](const auto& t) { return twin_linear(t[0], t[1], t[2]); },
                 {{rows, in}, {out, in}, {out}});
    expect_twins(without, [](const auto& t) { return twin_linear(t[0], t[1], {}); },
                 {{2, rows, in}, {out, in}});
  }
}

// Whole, in one part and row by row.
TEST(Twins, GeluLinear) {
  for (const auto form : {GeluApproximate::kNone, GeluApproximate::kTanh}) {
    for (const int64_t least_bytes : {int64_t{1} << 20, int64_t{300}, int64_t{0}}) {
      const RecomputeGuard guard(least_bytes);
      expect_twins([form](const auto& t) { return gelu_linear(t[0], t[1], t[2], form); },
                   [form](const auto& t) { return twin_linear(gelu(t[0], form), t[1], t[2]); },
                   {{5, 3, 33}, {17, 33}, {17}});
      expect_twins([form](const auto& t) { return gelu_linear(t[0], t[1], {}, form); },
                   [form](const auto& t) { return twin_linear(gelu(t[0], form), t[1], {}); },
                   {{7, 5}, {4, 5}});
    }
  }
}

TEST(Twins, Softmax) {
  for (const Shape& shape : kShapes) {
    for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim) {
      expect_twins([dim](const auto& t) { return softmax(t[0], dim); },
                   [dim](const auto& t) { return twin_softmax(t[0], dim); }, {shape});
    }
  }
}

TEST(Twins, LogSoftmax) {
  for (const Shape& shape : kShapes) {
    for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim) {
      expect_twins([dim](const auto& t) { return log_softmax(t[0], dim); },
                   [dim](const auto& t) { return twin_log_softmax(t[0], dim); }, {shape});
    }
  }
}

TEST(Twins, CrossEntropy) {
  for (const int64_t classes : {1, 3, 16, 65}) {
    Generator generator(7);
    const Tensor target = randint(0, classes, {3, 5}, generator);
    for (const int64_t ignore_index : {int64_t{-100}, classes - 1}) {
      if (classes == 1 && ignore_index == 0) {
        continue;  // nothing would be left
      }
      expect_twins([=](const auto& t) { return cross_entropy(t[0], target, ignore_index); },
                   [=](const auto& t) { return twin_cross_entropy(t[0], target, ignore_index); },
                   {{3, 5, classes}});
    }
  }
}

TEST(Twins, LayerNorm) {
  for (const Shape& shape : {Shape{3, 5, 37}, Shape{7, 16}, Shape{2, 3}}) {
    const Shape row = {shape.back()};
    for (const double eps : {1e-5, 0.1}) {
      expect_twins([eps](const auto& t) { return layer_norm(t[0], t[1], t[2], eps); },
                   [eps](const auto& t) { return twin_layer_norm(t[0], t[1], t[2], eps); },
                   {shape, row, row});
      expect_twins([eps](const auto& t) { return layer_norm(t[0], t[1], {}, eps); },
                   [eps](const auto& t) { return twin_layer_norm(t[0], t[1], {}, eps); },
                   {shape, row});
      expect_twins([eps](const auto& t) { return layer_norm(t[0], {}, {}, eps); },
                   [eps](const auto& t) { return twin_layer_norm(t[0], {}, {}, eps); }, {shape});
    }
  }
}

TEST(Twins, GeluTanh) {
  for (const Shape& shape : kShapes) {
    expect_twins([](const auto& t) { return gelu(t[0], GeluApproximate::kTanh); },
                 [](const auto& t) { return twin_gelu_tanh(t[0]); }, {shape});
  }
}

// The menu has no erf to compose this one of: the formula and its derivative, number by number.
TEST(Twins, GeluExact) {
  for (const DType dtype : {kFloat64, kFloat32}) {
    const Tensor x = draw({{3, 5, 37}}, dtype)[0];
    const Tensor y = gelu(x);
    const std::vector<double> values = x.to_vector<double>();
    std::vector<double> expected, derivative;
    for (const double value : values) {
      const double phi = std::exp(-value * value / 2) / std::sqrt(2 * kPi);
      const double cumulative = 0.5 * (1 + std::erf(value / std::sqrt(2.0)));
      expected.push_back(value * cumulative);
      derivative.push_back(cumulative + value * phi);
    }
    expect_near(y, from_vector(expected, x.shape(), dtype), "value");
    expect_near(grad({y}, {x}, {ones_like(y)})[0], from_vector(derivative, x.shape(), dtype),
                "gradient");
  }
}

void expect_attention_twins(const AttentionOptions& options, const Shape& q, const Shape& k,
                            const Shape& v) {
  // An additive mask has the inputs' dtype.
  const auto for_dtype = [&options](DType dtype) {
    AttentionOptions converted = options;
    if (options.attn_mask.defined() && options.attn_mask.dtype() != kBool) {
      converted.attn_mask = options.attn_mask.to(dtype);
    }
    return converted;
  };
  expect_twins(
      [&](const auto& t) {
        return scaled_dot_product_attention(t[0], t[1], t[2], for_dtype(t[0].dtype()));
      },
      [&](const auto& t) { return twin_attention(t[0], t[1], t[2], for_dtype(t[0].dtype())); },
      {q, k, v});
}

TEST(Twins, AttentionPlain) {
  AttentionOptions options;
  expect_attention_twins(options, {2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 6});
  expect_attention_twins(options, {5, 3}, {6, 3}, {6, 3});
  expect_attention_twins(options, {2, 1, 1, 8}, {2, 1, 1, 8}, {2, 1, 1, 8});
  options.scale = 0.3;
  expect_attention_twins(options, {2, 9, 8}, {2, 17, 8}, {2, 17, 8});
}

TEST(Twins, AttentionCausal) {
  AttentionOptions options;
  options.is_causal = true;
  expect_attention_twins(options, {2, 3, 5, 4}, {2, 3, 5, 4}, {2, 3, 5, 4});
  expect_attention_twins(options, {1, 2, 33, 8}, {1, 2, 33, 8}, {1, 2, 33, 8});
  options.scale = 0.3;
  expect_attention_twins(options, {3, 5, 4}, {3, 8, 4}, {3, 8, 2});
  expect_attention_twins(options, {3, 8, 4}, {3, 5, 4}, {3, 5, 2});
}

TEST(Twins, AttentionMasks) {
  AttentionOptions options;
  // The second row sees nothing.
  options.attn_mask = ne(tensor({{1, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 0, 0}}), 0);
  expect_attention_twins(options, {2, 3, 5}, {2, 4, 5}, {2, 4, 5});
  options.attn_mask = ne(tensor({1, 0, 1, 1}), 0);  // broadcast over rows
  expect_attention_twins(options, {2, 2, 3, 5}, {2, 2, 4, 5}, {2, 2, 4, 5});
  options.attn_mask = tensor({{0.5, -kInfinity, -1, 2},
                              {-kInfinity, -kInfinity, -kInfinity, -kInfinity},
                              {0, 0.25, -3, 1}});
  expect_attention_twins(options, {2, 3, 5}, {2, 4, 5}, {2, 4, 5});
}

TEST(Twins, AttentionDropsTheSameWeights) {
  AttentionOptions options;
  options.key = DropoutKey{12345, 6};
  for (const double p : {0.2, 0.9}) {
    options.dropout_p = p;
    options.is_causal = false;
    expect_attention_twins(options, {2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 4});
    options.is_causal = true;
    expect_attention_twins(options, {2, 2, 19, 4}, {2, 2, 19, 4}, {2, 2, 19, 4});
  }
}

void expect_packed_twins(const AttentionOptions& options, const Shape& qkv, int64_t n_head) {
  const auto fused = [&](const auto& t) {
    return scaled_dot_product_attention_packed(t[0], n_head, options);
  };
  expect_twins(fused,
               [&](const auto& t) {
                 return twin_packed(t[0], n_head, options, scaled_dot_product_attention);
               },
               {qkv});
  expect_twins(fused,
               [&](const auto& t) { return twin_packed(t[0], n_head, options, twin_attention); },
               {qkv});
}

TEST(Twins, AttentionPacked) {
  AttentionOptions options;
  expect_packed_twins(options, {2, 5, 24}, 2);
  options.scale = 0.3;
  options.is_causal = true;
  expect_packed_twins(options, {1, 33, 30}, 2);
  options.dropout_p = 0.2;
  options.key = DropoutKey{12345, 6};
  expect_packed_twins(options, {3, 19, 36}, 4);
  AttentionOptions masked;
  masked.attn_mask = ne(tensor({{1, 0, 1}, {0, 0, 0}, {0, 1, 0}}), 0);
  expect_packed_twins(masked, {2, 3, 12}, 2);
}

}  // namespace
}  // namespace chargrad
