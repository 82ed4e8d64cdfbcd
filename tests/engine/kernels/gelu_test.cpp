#include "engine/kernels/gelu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/kernels/chunks.h"
#include "engine/kernels/gelu_ref.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

template <class Y>
struct Gelu {
  std::vector<Y> y, slope;
};

// Equal to the bit, but for NaN: its sign depends on the order of the operands of a product, which
// the compiler chooses.
template <class Y>
bool same_numbers(const std::vector<Y>& a, const std::vector<Y>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return (x == y && std::signbit(x) == std::signbit(y)) || (std::isnan(x) && std::isnan(y));
  });
}

// The gradient is the product of slope and dy, both as they are stored, to the bit; also in place.
template <class X, class Y>
void expect_backward(const std::vector<X>& x, const std::vector<Y>& slope, bool tanh_form) {
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<Y> dy = random_values<Y>(n, 11, -2, 2);
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    want.push_back(static_cast<double>(static_cast<Y>(static_cast<Wide<Y>>(dy[i]) * slope[i])));
  }
  Guarded<X> in(x);
  Guarded<Y> up(dy), dx(n);
  gelu_backward(in.data(), up.data(), dx.data(), n, tanh_form);
  EXPECT_TRUE(near(dx.get(), want, 1e-300, 0));
  gelu_backward(in.data(), up.data(), up.data(), n, tanh_form);
  EXPECT_TRUE(near(up.get(), want, 1e-300, 0));
  EXPECT_TRUE(dx.intact() && up.intact());
  if constexpr (std::is_same_v<X, Y>) {
    up = Guarded<Y>(dy);
    gelu_backward(in.data(), up.data(), in.data(), n, tanh_form);
    EXPECT_TRUE(near(in.get(), want, 1e-300, 0));
    EXPECT_TRUE(in.intact());
  }
}

template <class Y, class X>
Gelu<Y> run(const std::vector<X>& x, bool tanh_form) {
  const auto n = static_cast<int64_t>(x.size());
  Guarded<X> in(x);
  Guarded<Y> y(n), slope(n), alone(n);
  gelu(in.data(), y.data(), slope.data(), n, tanh_form);
  gelu<X, Y>(in.data(), alone.data(), nullptr, n, tanh_form);
  EXPECT_TRUE(y.intact() && slope.intact() && alone.intact());
  EXPECT_TRUE(same_numbers(alone.get(), y.get()));
  if (n <= 1 << 16) {  // more take a second on the plain loops
    expect_backward(x, slope.get(), tanh_form);
  }
  return {y.get(), slope.get()};
}

std::vector<float> forward(const std::vector<float>& x, bool tanh_form) {
  return run<float>(x, tanh_form).y;
}

std::vector<float> slope(const std::vector<float>& x, bool tanh_form) {
  return run<float>(x, tanh_form).slope;
}

template <class X>
Gelu<double> truth(const std::vector<X>& x, bool tanh_form) {
  Gelu<double> result{std::vector<double>(x.size()), std::vector<double>(x.size())};
  ref::gelu(to_double(x).data(), result.y.data(), result.slope.data(),
            static_cast<int64_t>(x.size()), tanh_form);
  return result;
}

// Phi is right to 1e-7 and relatively to 2e-7 + 6e-8 x^2, which is the larger in the lower tail;
// at |x| = 13, where Phi ends in subnormal numbers, that is 1.1e-5.
TEST(Gelu, AgreesWithDoubleTailsIncluded) {
  const std::vector<float> x = random_values<float>(1 << 19, 1, -13, 13);
  for (const bool tanh_form : {false, true}) {
    const double tail = tanh_form ? 4e-5 : 1.2e-5;  // u of the tanh form grows as x^3.
    const Gelu<float> got = run<float>(x, tanh_form);
    const Gelu<double> want = truth(x, tanh_form);
    EXPECT_TRUE(near(got.y, want.y, 1e-37, tail));
    // Near its zeros the derivative is a difference of terms of about 0.2.
    EXPECT_TRUE(near(got.slope, want.slope, 4e-7, 0));
  }
  // At -3 the exponent of the tanh form is 6.7 and carries three roundings, 1.2e-6; a few more.
  const std::vector<float> middle = random_values<float>(1 << 19, 2, -3, 3);
  for (const bool tanh_form : {false, true}) {
    EXPECT_TRUE(near(forward(middle, tanh_form), truth(middle, tanh_form).y, 0, 2e-6));
  }
}

// Closed forms: gelu(1) = Phi(1); gelu'(0) = 1/2; tanh form: sqrt(2/pi) * 1.044715 = 0.833573.
TEST(Gelu, KnownValues) {
  EXPECT_NEAR(forward({1}, false)[0], 0.8413447460685429, 1e-7);
  EXPECT_NEAR(forward({-1}, false)[0], -0.15865525393145707, 1e-7);
  EXPECT_NEAR(forward({1}, true)[0], 0.8411919906082768, 1e-7);
  EXPECT_NEAR(slope({0}, false)[0], 0.5, 1e-7);
  EXPECT_NEAR(slope({0}, true)[0], 0.5, 1e-7);
  EXPECT_NEAR(slope({1}, false)[0], 1.0833154705876864, 2e-7);
}

TEST(Gelu, EdgeValues) {
  for (const bool tanh_form : {false, true}) {
    EXPECT_EQ(forward({-100, 0, 100}, tanh_form), (std::vector<float>{0, 0, 100}));
    EXPECT_EQ(slope({-100, 100}, tanh_form), (std::vector<float>{0, 1}));
    const auto inf = std::numeric_limits<float>::infinity();
    const auto y = forward({inf, -inf, std::nanf("")}, tanh_form);
    EXPECT_EQ(y[0], inf);
    EXPECT_TRUE(std::isnan(y[1]));  // -inf * 0, as in PyTorch.
    EXPECT_TRUE(std::isnan(y[2]));
  }
}

// The same numbers, rounded once more; a slope near its zero keeps its absolute error.
template <class X>
void expect_bfloat16_of(const std::vector<X>& x) {
  for (const bool tanh_form : {false, true}) {
    const Gelu<bfloat16> got = run<bfloat16>(x, tanh_form);
    const Gelu<double> want = truth(x, tanh_form);
    EXPECT_TRUE(near(got.y, want.y, 1e-37, kBFloat16Rounding + 2e-5));
    // One slope alone may be near its zero.
    EXPECT_TRUE(near(got.slope, want.slope, 4e-7, kBFloat16Rounding,
                     x.size() == 1 ? OnePercent::kPasses : OnePercent::kFails));
  }
}

TEST(Gelu, BFloat16RoundsOnce) {
  for (const int64_t n : odd_lengths()) {
    SCOPED_TRACE(n);
    expect_bfloat16_of(random_values<float>(n, 8, -6, 6));
    expect_bfloat16_of(random_values<bfloat16>(n, 9, -6, 6));
  }
  const auto inf = std::numeric_limits<float>::infinity();
  for (const bool tanh_form : {false, true}) {
    const auto y = run<bfloat16>(std::vector<bfloat16>{-100, 100, inf, std::nanf("")}, tanh_form).y;
    EXPECT_EQ(to_double(std::vector<bfloat16>(y.begin(), y.begin() + 3)),
              (std::vector<double>{0, 100, inf}));
    EXPECT_TRUE(std::isnan(static_cast<float>(y[3])));
  }
}

// Without a slope values are looked up; run() compares them with those beside a slope.
TEST(Gelu, EveryBFloat16IsTheSameWithAndWithoutSlope) {
  std::vector<bfloat16> x(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i].bits = static_cast<uint16_t>(i);
  }
  for (const bool tanh_form : {false, true}) {
    EXPECT_EQ(run<bfloat16>(x, tanh_form).y.size(), x.size());
  }
}

TEST(Gelu, SameResultAtEveryPlaceAndLength) {
  const std::vector<float> x = random_values<float>(131, 3, -4, 4);
  for (const bool tanh_form : {false, true}) {
    std::vector<float> y, dx;
    for (const float v : x) {
      y.push_back(forward({v}, tanh_form)[0]);
      dx.push_back(slope({v}, tanh_form)[0]);
    }
    for (const int64_t n : odd_lengths()) {
      const std::vector<float> part(x.begin(), x.begin() + n);
      EXPECT_TRUE(same_bits(forward(part, tanh_form), {y.begin(), y.begin() + n})) << n;
      EXPECT_TRUE(same_bits(slope(part, tanh_form), {dx.begin(), dx.begin() + n})) << n;
    }
  }
}

TEST(Gelu, RefSlopeIsTheDerivative) {
  const std::vector<double> x = random_values<double>(60, 5, -4, 4);
  for (const bool tanh_form : {false, true}) {
    const auto sum = [&](const std::vector<double>& at) {
      return dot(run<double>(at, tanh_form).y, std::vector<double>(at.size(), 1.0));
    };
    // The sum is about 60, so rounding is 60e-16 / 1e-5.
    EXPECT_TRUE(near(run<double>(x, tanh_form).slope, central_differences(sum, x), 5e-9, 0));
  }
}

TEST(Gelu, SameForAllThreadCounts) {
  const std::vector<float> x = random_values<float>(3 * kChunkElements + 17, 7, -3, 3);
  for (const bool tanh_form : {false, true}) {
    EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return forward(x, tanh_form); }));
    EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return slope(x, tanh_form); }));
  }
}

}  // namespace
}  // namespace chargrad::kernels
