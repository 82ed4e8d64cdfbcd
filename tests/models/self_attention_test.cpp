// Self-attention over batches: the worked example of seed 42, the failure modes, the exercises.
#include "models/self_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/error_text.h"
#include "tests/models/lesson_testing.h"

namespace chargrad {
namespace {

constexpr double kUnit = 1e-4;

// The lesson draws its input first, then the three matrices.
struct WorkedExample {
  Generator generator{42};
  Tensor x = randn({1, 4, 8}, kFloat32, generator);
  SelfAttention attention{8, 4, 4, generator};
  Tensor Q = matmul(x, attention.W_Q);
  Tensor K = matmul(x, attention.W_K);
  Tensor V = matmul(x, attention.W_V);
};

TEST(SelfAttention, ProjectionsOfSeed42) {
  const WorkedExample e;
  expect_printed(e.Q,
                 {-0.7142, -10.7618, 4.7928, 1.6591, 5.9094, -2.2237, 2.2946, -1.0836, -3.2318,
                  3.9874, -3.4993, 4.7026, -3.5491, 3.5556, -3.1290, 1.0415},
                 kUnit);
  expect_printed(e.K,
                 {4.0115, 3.6513, 2.9872, 3.6108, -3.4479, -0.5821, 1.8296, 2.9016, 0.9276, -0.0589,
                  6.4627, 1.9089, 1.3121, -0.1874, 0.3295, 1.9857},
                 kUnit);
  expect_printed(e.V,
                 {-8.2489, -0.9326, 2.3788, -0.8355, 4.1438, -1.3904, 2.1127, -1.3241, -0.2973,
                  1.8336, 2.2672, 1.4077, -0.8263, 3.7984, 3.3404, -0.7702},
                 kUnit);
}

TEST(SelfAttention, ScoresAndOutputOfSeed42) {
  const WorkedExample e;
  expect_printed(e.attention.scores(e.x),
                 {-10.9254, 11.1552, 17.0567, 2.9766, 9.2642, -9.0133, 9.1868, 3.3872, 4.0607,
                  8.0325, -8.4355, 1.5988, -3.4206, 3.7321, -10.8679, -2.1428},
                 kUnit);
  expect_printed(e.attention.forward(e.x).output,
                 {-0.2852, 1.8248, 2.2668, 1.4002, -4.4217, 0.4019, 2.3266, 0.2412, 3.9072, -1.3738,
                  2.1196, -1.3142, 4.1202, -1.3755, 2.1164, -1.3222},
                 kUnit);
}

TEST(SelfAttention, WeightsOfSeed42) {
  const WorkedExample e;
  const std::vector<double> printed = {7.02e-13, 2.73e-03, 9.97e-01, 7.65e-07, 5.19e-01, 5.98e-09,
                                       4.80e-01, 1.45e-03, 1.85e-02, 9.80e-01, 6.91e-08, 1.57e-03,
                                       7.80e-04, 9.96e-01, 4.55e-07, 2.80e-03};
  const Tensor weights = e.attention.forward(e.x).weights;
  const std::vector<double> values = weights.to_vector<double>();
  for (size_t i = 0; i < printed.size(); ++i) {
    // Three digits are printed: a unit of the last is 0.01 times the power of ten below.
    EXPECT_NEAR(values[i], printed[i], 0.01 * std::pow(10, std::floor(std::log10(printed[i]))));
  }
  for (const double row : sum(weights, {-1}).to_vector<double>()) {
    EXPECT_NEAR(row, 1, 4 * 0x1p-24);
  }
}

TEST(SelfAttention, Reference) {
  if (!has_seeds_reference()) {
    GTEST_SKIP() << "CHARGRAD_SHARED is not set";
  }
  const WorkedExample e;
  const auto& expected = seeds_reference()["by_hand_seed42"];
  expect_reference(e.x, expected["X"]);
  expect_reference(e.attention.W_Q, expected["W_Q"]);
  expect_reference(e.attention.W_K, expected["W_K"]);
  expect_reference(e.attention.W_V, expected["W_V"]);
  expect_reference(e.Q, expected["Q"]);
  expect_reference(e.K, expected["K"]);
  expect_reference(e.V, expected["V"]);
  expect_reference(e.attention.scores(e.x), expected["scores"]);
  const SelfAttention::Output y = e.attention.forward(e.x);
  expect_reference(y.weights, expected["attn_weights"]);
  expect_reference(y.output, expected["output"]);
}

TEST(SelfAttention, EqualsTheFusedOpWithScaleOneHalf) {
  const WorkedExample e;
  AttentionOptions options;
  options.scale = 0.5;
  const Tensor fused = scaled_dot_product_attention(e.Q, e.K, e.V, options);
  EXPECT_LT(max_difference(fused, e.attention.forward(e.x).output), 1e-6);
}

// --- failure modes: T = 5, d_k = 3, d_v = 2 tell a wrong transpose and Q in place of V
// ------------

struct Odd {
  Generator generator{7};
  Tensor x = randn({2, 5, 6}, kFloat32, generator);
  SelfAttention attention{6, 3, 2, generator};
  Tensor Q = matmul(x, attention.W_Q);  // (2, 5, 3)
  Tensor K = matmul(x, attention.W_K);  // (2, 5, 3)
  Tensor V = matmul(x, attention.W_V);  // (2, 5, 2)
  Tensor output = attention.forward(x).output;

  // The same by the fused op, which shares no line with the module.
  Tensor fused() const { return scaled_dot_product_attention(Q, K, V); }
};

// What the right version may differ by; the wrong ones differ by thousands of times that.
constexpr double kRounding = 2e-6;

TEST(FailureModes, TheRightVersion) {
  const Odd o;
  EXPECT_EQ(o.attention.scores(o.x).shape(), (Shape{2, 5, 5}));
  EXPECT_EQ(o.output.shape(), (Shape{2, 5, 2}));
  EXPECT_LT(max_difference(o.output, o.fused()), kRounding);
}

TEST(FailureModes, MissingScale) {
  const Odd o;
  const Tensor raw = matmul(o.Q, o.K.transpose(-2, -1));
  const Tensor wrong = matmul(softmax(raw), o.V);
  EXPECT_GT(max_difference(wrong, o.output), 1000 * kRounding);
  EXPECT_LT(max_difference(raw / std::sqrt(3.0), o.attention.scores(o.x)), 16 * kRounding);
  // Its largest weights are larger: rows are closer to one-hot.
  EXPECT_GT(mean(amax(softmax(raw), {-1})).item(),
            mean(amax(o.attention.forward(o.x).weights, {-1})).item() + 0.01);
}

TEST(FailureModes, UnstableSoftmax) {
  const auto naive = [](const Tensor& s) { return exp(s) / sum(exp(s), {-1}, true); };
  const Tensor large = tensor({1000, 1001, 999, 1002});
  for (const double weight : naive(large).to_vector<double>()) {
    EXPECT_FALSE(std::isfinite(weight));
  }
  for (const Tensor& weights : {softmax(large), stable_softmax(large)}) {
    expect_printed(weights, {0.0871, 0.2369, 0.0321, 0.6439}, kUnit);
  }
  // The module itself on large inputs; values and gradients stay finite.
  const Odd o;
  const Tensor x = (o.x * 100).set_requires_grad();
  const SelfAttention::Output y = o.attention.forward(x);
  EXPECT_GT(amax(o.attention.scores(x.detach())).item(), 1000);
  sum(pow(y.output, 2)).backward();
  for (const Tensor& t : {y.weights, y.output, x.grad()}) {
    for (const double value : t.to_vector<double>()) {
      ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(FailureModes, StableSoftmaxGradient) {
  Generator generator(9);
  const Tensor a = randn({3, 5}, kFloat64, generator).set_requires_grad();
  const Tensor b = clone(a.detach()).set_requires_grad();
  const Tensor upstream = randn({3, 5}, kFloat64, generator);
  stable_softmax(a).backward(upstream);
  softmax(b).backward(upstream);
  EXPECT_LT(max_difference(a.grad(), b.grad()), 1e-14);
}

TEST(FailureModes, WrongTranspose) {
  const Odd o;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { matmul(o.Q, o.K); }).substr(0, 7), "matmul:");
  // Transposing the wrong dims of a square score grid keeps the shape and swaps query and key.
  const Tensor swapped = o.attention.scores(o.x).transpose(-2, -1);
  EXPECT_EQ(swapped.shape(), (Shape{2, 5, 5}));
  EXPECT_GT(max_difference(matmul(softmax(swapped), o.V), o.output), 1000 * kRounding);
  EXPECT_NEAR(
      o.attention.scores(o.x).item({0, 1, 3}),
      sum(o.Q.select(0, 0).select(0, 1) * o.K.select(0, 0).select(0, 3)).item() / std::sqrt(3.0),
      16 * kRounding);
}

TEST(FailureModes, QueryInPlaceOfValue) {
  const Odd o;
  const Tensor weights = o.attention.forward(o.x).weights;
  const Tensor wrong = matmul(weights, o.Q);
  EXPECT_NE(wrong.shape(), o.output.shape());
  // Also where the sizes hide it.
  const WorkedExample e;
  const Tensor hidden = matmul(e.attention.forward(e.x).weights, e.Q);
  EXPECT_EQ(hidden.shape(), e.V.shape());
  EXPECT_GT(max_difference(hidden, e.attention.forward(e.x).output), 0.1);
  // An output is a convex combination of the values: it stays between their extremes.
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t c = 0; c < 2; ++c) {
      const Tensor column = o.V.select(0, b).select(1, c);
      const Tensor blended = o.output.select(0, b).select(1, c);
      EXPECT_LE(amax(blended).item(), amax(column).item() + kRounding);
      EXPECT_GE(amin(blended).item(), amin(column).item() - kRounding);
    }
  }
}

// --- the exercises -------------------------------------------------------------------------------

TEST(Exercises, ShapesOfEveryStep) {
  Generator generator(1);
  const SelfAttention attention(6, 2, 2, generator);
  const Tensor x = randn({1, 3, 6}, kFloat32, generator);
  EXPECT_EQ(matmul(x, attention.W_Q).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(matmul(x, attention.W_K).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(matmul(x, attention.W_V).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(attention.scores(x).shape(), (Shape{1, 3, 3}));
  EXPECT_EQ(attention.forward(x).weights.shape(), (Shape{1, 3, 3}));
  EXPECT_EQ(attention.forward(x).output.shape(), (Shape{1, 3, 2}));
}

TEST(Exercises, ScoresOfFiveHundred) {
  const Tensor s = tensor({500, -500, 0});
  // exp(500) is beyond float32: inf / inf.
  EXPECT_TRUE(std::isinf(exp(s).item({0})));
  EXPECT_TRUE(std::isnan((exp(s) / sum(exp(s))).item({0})));
  EXPECT_THAT(stable_softmax(s).to_vector<float>(), testing::ElementsAre(1, 0, 0));
  EXPECT_THAT(softmax(s).to_vector<float>(), testing::ElementsAre(1, 0, 0));
  // Scaled by sqrt(64) = 8 the scores are +-62.5: the naive softmax would survive.
  EXPECT_TRUE(std::isfinite(exp(s / 8).item({0})));
}

TEST(Exercises, FirstRowIsWhatTheFirstPositionLooksAt) {
  const WorkedExample e;
  const SelfAttention::Output y = e.attention.forward(e.x);
  const Tensor row = y.weights.select(1, 0);  // (1, 4)
  EXPECT_EQ(row.shape(), (Shape{1, 4}));
  EXPECT_NEAR(sum(row).item(), 1, 4 * 0x1p-24);
  EXPECT_LT(max_difference(matmul(row, e.V.select(0, 0)), y.output.select(1, 0)), 1e-6);
}

TEST(SelfAttention, RefusesOtherShapes) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { SelfAttention(8, 4, 0); }),
            "SelfAttention: d_model, d_k and d_v must be positive, got 8, 4 and 0");
  const SelfAttention attention(8, 4, 4);
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              attention.forward(zeros({4, 8}));
            }),
            "SelfAttention: x must be (B, T, d_model), got shape [4, 8]");
}

}  // namespace
}  // namespace chargrad
