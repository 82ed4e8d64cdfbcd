#include "train/optim/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"

namespace chargrad::optim {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

Tensor parameter(const std::vector<double>& values, const Shape& shape) {
  return from_vector(values, shape, kFloat32).set_requires_grad();
}

// One element by the formulas of the paper, in double.
struct Reference {
  double p, m = 0, v = 0;
  void step(const AdamWOptions& o, double g, int64_t t, double decay) {
    p -= o.learning_rate * decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const auto n = static_cast<double>(t);
    const double m_hat = m / (1 - std::pow(o.beta1, n)), v_hat = v / (1 - std::pow(o.beta2, n));
    p -= o.learning_rate * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

TEST(AdamW, FollowsThePaperAndDecaysMatricesOnly) {
  AdamWOptions options;
  options.learning_rate = 0.1;
  options.beta1 = 0.8;
  options.beta2 = 0.9;
  options.weight_decay = 0.5;
  const Tensor matrix = parameter({1.0}, {1, 1});
  const Tensor vector = parameter({1.0}, {1});
  AdamW adamw({{"matrix", matrix}, {"vector", vector}}, options);
  Reference with_decay{1.0}, without{1.0};
  for (int64_t t = 1; t <= 5; ++t) {
    const double g = t % 2 == 0 ? -0.3 : 0.7;
    matrix.set_grad(full({1, 1}, g));
    vector.set_grad(full({1}, g));
    adamw.step();
    with_decay.step(options, g, t, options.weight_decay);
    without.step(options, g, t, 0);
    // Five updates of a handful of float32 roundings each.
    EXPECT_NEAR(matrix.item(), with_decay.p, 5e-6) << t;
    EXPECT_NEAR(vector.item(), without.p, 5e-6) << t;
  }
  EXPECT_EQ(adamw.steps(), 5);
}

TEST(AdamW, PassesOverParametersWithoutGradient) {
  const Tensor a = parameter({1.0}, {1, 1});
  AdamW adamw({{"a", a}}, {});
  adamw.step();
  EXPECT_EQ(a.item(), 1.0);
}

TEST(AdamW, RateZeroChangesNothing) {
  const Tensor w = parameter({2.0}, {1, 1});
  AdamWOptions options;
  options.learning_rate = 0;
  AdamW adamw({{"w", w}}, options);
  w.set_grad(full({1, 1}, 4));
  adamw.step();
  EXPECT_EQ(w.item(), 2.0);
}

TEST(AdamW, StateIsSharedUnderTheParametersNames) {
  const Tensor w = parameter({2.0}, {1, 1});
  AdamW adamw({{"w", w}}, {});
  const nn::NamedTensors state = adamw.state();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].first, "exp_avg.w");
  EXPECT_EQ(state[1].first, "exp_avg_sq.w");
  w.set_grad(full({1, 1}, 1));
  adamw.step();
  EXPECT_NEAR(state[0].second.item(), 0.1, 1e-7);
  EXPECT_NEAR(state[1].second.item(), 0.001, 1e-9);
}

Tensor with_grad(const std::vector<double>& gradient) {
  const auto n = static_cast<int64_t>(gradient.size());
  Tensor p = zeros({n}).set_requires_grad();
  p.set_grad(from_vector(gradient, {n}, kFloat32));
  return p;
}

TEST(GradNorm, CountsAllParametersTogether) {
  const Tensor a = with_grad({3}), b = with_grad({4}), none = zeros({2}).set_requires_grad();
  EXPECT_DOUBLE_EQ(grad_norm({a, none, b}), 5);
  EXPECT_EQ(grad_norm({none}), 0);
  EXPECT_TRUE(std::isinf(grad_norm({a, with_grad({INFINITY, 4})})));
}

// The norm 5 becomes 1; smaller ones stay.
TEST(ClipFactor, BringsTheNormDownToTheLimit) {
  EXPECT_NEAR(clip_factor(5, 1), 0.2, 1e-7);
  EXPECT_LT(5 * clip_factor(5, 1), 1);
  EXPECT_EQ(clip_factor(5, 10), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
}

TEST(ClipFactor, ZeroIsOffAndNonsenseIsRefused) {
  EXPECT_EQ(clip_factor(5, 0), 1);
  EXPECT_EQ(clip_factor(INFINITY, 1), 1);
  EXPECT_EQ(clip_factor(std::nan(""), 1), 1);
  for (const double bad : {-1.0, std::nan(""), double{INFINITY}}) {
    try {
      clip_factor(5, bad);
      ADD_FAILURE() << bad;
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), testing::StartsWith(
                                "clip_factor: max_norm must be finite and not negative, got "));
    }
  }
}

// One step of gradients (3, 4) scaled to norm 1 is that of (0.6, 0.8), and .grad is as it was.
TEST(ClipFactor, TheUpdateScalesWhatItReads) {
  const Tensor p = with_grad({3, 4}), q = with_grad({0.6, 0.8});
  AdamW clipped({{"p", p}}, {}), small({{"q", q}}, {});
  clipped.step(0.2);
  small.step();
  const std::vector<double> m = clipped.state()[0].second.to_vector<double>();
  EXPECT_THAT(m, ElementsAre(DoubleNear(0.06, 1e-8), DoubleNear(0.08, 1e-8)));
  EXPECT_THAT(p.grad().to_vector<float>(), ElementsAre(3, 4));
  EXPECT_NEAR(p.item({1}), q.item({1}), 1e-9);
}

}  // namespace
}  // namespace chargrad::optim
