#include "engine/kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/kernels/adamw_ref.h"
#include "engine/kernels/chunks.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

template <class S>
struct State {
  std::vector<S> p, m, v;
};

template <class S>
State<S> step(const AdamW& settings, const std::vector<S>& g, const State<S>& before) {
  Guarded<S> grad(g), p(before.p), m(before.m), v(before.v);
  adamw_step(settings, grad.data(), p.data(), m.data(), v.data(), static_cast<int64_t>(g.size()));
  EXPECT_TRUE(p.intact() && m.intact() && v.intact());
  EXPECT_TRUE(same_bits(grad.get(), g));
  return {p.get(), m.get(), v.get()};
}

// By hand, one element: p = 1, g = 0.5, lr = 0.1, decay 0.1. Bias correction makes m = 0.5 and
// sqrt(v) = 0.5 in the first step, so p = 1 * 0.99 - 0.1 * 0.5 / (0.5 + eps).
TEST(AdamW, FirstStepByHand) {
  AdamW settings;
  settings.lr = 0.1;
  settings.weight_decay = 0.1;
  settings.eps = 0.5;
  const State<double> s = step<double>(settings, {0.5}, {{1}, {0}, {0}});
  EXPECT_NEAR(s.m[0], 0.05, 1e-15);
  EXPECT_NEAR(s.v[0], 0.00025, 1e-15);
  EXPECT_NEAR(s.p[0], 0.99 - 0.1 * 0.5 / (0.5 + 0.5), 1e-14);
}

// The definition in long form, five steps with other settings in each.
TEST(AdamW, AgreesWithTheDefinition) {
  State<double> s{{0.7}, {0}, {0}};
  long double p = 0.7L, m = 0, v = 0, beta1_power = 1, beta2_power = 1;
  AdamW settings;
  settings.beta1 = 0.8;
  settings.beta2 = 0.95;
  settings.eps = 1e-3;
  for (int i = 1; i <= 5; ++i) {
    settings.step = i;
    settings.lr = 0.01 * i;
    settings.weight_decay = 0.2 / i;
    const double g = std::sin(3.0 * i);
    s = step<double>(settings, {g}, s);
    p -= settings.lr * settings.weight_decay * p;
    m = 0.8L * m + 0.2L * g;
    v = 0.95L * v + 0.05L * g * g;
    beta1_power *= 0.8L;
    beta2_power *= 0.95L;
    p -= settings.lr * (m / (1 - beta1_power)) / (std::sqrt(v / (1 - beta2_power)) + 1e-3L);
    EXPECT_NEAR(s.p[0], static_cast<double>(p), 1e-14) << i;
    EXPECT_NEAR(s.m[0], static_cast<double>(m), 1e-14) << i;
    EXPECT_NEAR(s.v[0], static_cast<double>(v), 1e-14) << i;
  }
}

// No operation is fused, so every tier rounds as the plain loop.
TEST(AdamW, EveryTierGivesTheBitsOfThePlainLoop) {
  AdamW settings;
  settings.step = 3;
  settings.grad_scale = 0.37;
  for (const int64_t n : odd_lengths()) {
    const std::vector<float> g = random_values<float>(n, 1, -1, 1);
    State<float> want{random_values<float>(n, 2, -1, 1), random_values<float>(n, 3, -1, 1),
                      random_values<float>(n, 4, 0, 1)};
    const State<float> got = step(settings, g, want);
    ref::adamw_step(ref::AdamWConstants<float>(settings), g.data(), want.p.data(), want.m.data(),
                    want.v.data(), n);
    EXPECT_TRUE(same_bits(got.p, want.p)) << n;
    EXPECT_TRUE(same_bits(got.m, want.m)) << n;
    EXPECT_TRUE(same_bits(got.v, want.v)) << n;
  }
}

TEST(AdamW, ScaledGradientsAreThoseOfASmallerStep) {
  const std::vector<float> g = random_values<float>(67, 9, -1, 1);
  const State<float> before{g, g, std::vector<float>(g.size(), 0.5f)};
  AdamW settings;
  settings.grad_scale = 0.37;
  std::vector<float> scaled = g;
  for (float& value : scaled) {
    value *= 0.37f;
  }
  EXPECT_TRUE(same_bits(step(settings, g, before).p, step(AdamW{}, scaled, before).p));
}

TEST(AdamW, ZeroGradientsDecayOnly) {
  AdamW settings;
  const State<float> s = step<float>(settings, {0, 0}, {{1, -2}, {0, 0}, {0, 0}});
  const float decay = 1 - 1e-5;
  EXPECT_EQ(s.p, (std::vector<float>{decay, -2 * decay}));
}

TEST(SumOfSquares, AgreesWithDouble) {
  for (const int64_t n : odd_lengths()) {
    const std::vector<float> x = random_values<float>(n, 5, -2, 3);
    Guarded<float> in(x);
    // Products and sums in double, in another order.
    EXPECT_TRUE(near(std::vector<double>{sum_of_squares(in.data(), n)},
                     {dot(to_double(x), to_double(x))}, 1e-12, 0))
        << n;
  }
}

TEST(SumOfSquares, LargeNumbersAndThreadCounts) {
  const std::vector<float> huge = {1e30f, -1e30f, 0};
  EXPECT_NEAR(std::sqrt(sum_of_squares(huge.data(), 3)), std::sqrt(2.0) * 1e30, 1e23);
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(&nan, 1)));
  const std::vector<float> x = random_values<float>(5 * kChunkElements + 11, 6, -1, 1);
  EXPECT_TRUE(same_for_all_thread_counts<double>([&] {
    return std::vector<double>{sum_of_squares(x.data(), static_cast<int64_t>(x.size()))};
  }));
}

TEST(AdamW, SameForAllThreadCounts) {
  const std::vector<float> g = random_values<float>(3 * kChunkElements + 5, 8, -1, 1);
  const State<float> before{g, g, std::vector<float>(g.size(), 0.5f)};
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return step(AdamW{}, g, before).p; }));
}

}  // namespace
}  // namespace chargrad::kernels
