#include "engine/kernels/gelu.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine/kernels/chunks.h"
#include "engine/kernels/gelu_ref.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

std::vector<float> forward(const std::vector<float>& x, bool tanh_form) {
  Guarded<float> in(x), out(static_cast<int64_t>(x.size()));
  gelu_forward(in.data(), out.data(), static_cast<int64_t>(x.size()), tanh_form);
  EXPECT_TRUE(out.intact());
  return out.get();
}

std::vector<float> backward(const std::vector<float>& x, const std::vector<float>& dy,
                            bool tanh_form) {
  Guarded<float> in(x), up(dy), out(static_cast<int64_t>(x.size()));
  gelu_backward(in.data(), up.data(), out.data(), static_cast<int64_t>(x.size()), tanh_form);
  EXPECT_TRUE(out.intact());
  return out.get();
}

std::vector<double> ref_forward(const std::vector<float>& x, bool tanh_form) {
  std::vector<double> y(x.size());
  ref::gelu_forward(to_double(x).data(), y.data(), static_cast<int64_t>(x.size()), tanh_form);
  return y;
}

std::vector<double> ref_backward(const std::vector<float>& x, const std::vector<float>& dy,
                                 bool tanh_form) {
  std::vector<double> dx(x.size());
  ref::gelu_backward(to_double(x).data(), to_double(dy).data(), dx.data(),
                     static_cast<int64_t>(x.size()), tanh_form);
  return dx;
}

// Phi is right to 1e-7 and relatively to 2e-7 + 6e-8 x^2, which is the larger in the lower tail;
// at |x| = 13, where Phi ends in subnormal numbers, that is 1.1e-5.
TEST(Gelu, AgreesWithDoubleTailsIncluded) {
  const std::vector<float> x = random_values<float>(1 << 19, 1, -13, 13);
  const std::vector<float> ones(x.size(), 1);
  for (const bool tanh_form : {false, true}) {
    const double tail = tanh_form ? 4e-5 : 1.2e-5;  // u of the tanh form grows as x^3.
    EXPECT_TRUE(near(forward(x, tanh_form), ref_forward(x, tanh_form), 1e-37, tail));
    // Near its zeros the derivative is a difference of terms of about 0.2.
    EXPECT_TRUE(near(backward(x, ones, tanh_form), ref_backward(x, ones, tanh_form), 4e-7, 0));
  }
  // At -3 the exponent of the tanh form is 6.7 and carries three roundings, 1.2e-6; a few more.
  const std::vector<float> middle = random_values<float>(1 << 19, 2, -3, 3);
  for (const bool tanh_form : {false, true}) {
    EXPECT_TRUE(near(forward(middle, tanh_form), ref_forward(middle, tanh_form), 0, 2e-6));
  }
}

// Closed forms: gelu(1) = Phi(1); gelu'(0) = 1/2; tanh form: sqrt(2/pi) * 1.044715 = 0.833573.
TEST(Gelu, KnownValues) {
  EXPECT_NEAR(forward({1}, false)[0], 0.8413447460685429, 1e-7);
  EXPECT_NEAR(forward({-1}, false)[0], -0.15865525393145707, 1e-7);
  EXPECT_NEAR(forward({1}, true)[0], 0.8411919906082768, 1e-7);
  EXPECT_NEAR(backward({0}, {1}, false)[0], 0.5, 1e-7);
  EXPECT_NEAR(backward({0}, {1}, true)[0], 0.5, 1e-7);
  EXPECT_NEAR(backward({1}, {2}, false)[0], 2 * 1.0833154705876864, 3e-7);
}

TEST(Gelu, EdgeValues) {
  for (const bool tanh_form : {false, true}) {
    EXPECT_EQ(forward({-100, 0, 100}, tanh_form), (std::vector<float>{0, 0, 100}));
    EXPECT_EQ(backward({-100, 100}, {1, 1}, tanh_form), (std::vector<float>{0, 1}));
    const auto inf = std::numeric_limits<float>::infinity();
    const auto y = forward({inf, -inf, std::nanf("")}, tanh_form);
    EXPECT_EQ(y[0], inf);
    EXPECT_TRUE(std::isnan(y[1]));  // -inf * 0, as in PyTorch.
    EXPECT_TRUE(std::isnan(y[2]));
  }
}

TEST(Gelu, SameResultAtEveryPlaceAndLength) {
  const std::vector<float> x = random_values<float>(131, 3, -4, 4);
  const std::vector<float> dy = random_values<float>(131, 4, -1, 1);
  for (const bool tanh_form : {false, true}) {
    std::vector<float> y, dx;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back(forward({x[i]}, tanh_form)[0]);
      dx.push_back(backward({x[i]}, {dy[i]}, tanh_form)[0]);
    }
    for (const int64_t n : odd_lengths()) {
      const std::vector<float> part(x.begin(), x.begin() + n), up(dy.begin(), dy.begin() + n);
      EXPECT_TRUE(same_bits(forward(part, tanh_form), {y.begin(), y.begin() + n})) << n;
      EXPECT_TRUE(same_bits(backward(part, up, tanh_form), {dx.begin(), dx.begin() + n})) << n;
    }
  }
}

TEST(Gelu, RefGradientIsTheDerivative) {
  const std::vector<double> x = random_values<double>(60, 5, -4, 4);
  const std::vector<double> dy = random_values<double>(60, 6, -1, 1);
  for (const bool tanh_form : {false, true}) {
    const auto value = [&](const std::vector<double>& at) {
      std::vector<double> y(at.size());
      gelu_forward(at.data(), y.data(), 60, tanh_form);
      return dot(y, dy);
    };
    std::vector<double> dx(x.size());
    gelu_backward(x.data(), dy.data(), dx.data(), 60, tanh_form);
    // The sum is about 60, so rounding is 60e-16 / 1e-5.
    EXPECT_TRUE(near(dx, central_differences(value, x), 5e-9, 0));
  }
}

TEST(Gelu, SameForAllThreadCounts) {
  const std::vector<float> x = random_values<float>(3 * kChunkElements + 17, 7, -3, 3);
  for (const bool tanh_form : {false, true}) {
    EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return forward(x, tanh_form); }));
    EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return backward(x, x, tanh_form); }));
  }
}

}  // namespace
}  // namespace chargrad::kernels
