#include "engine/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/kernels/kernel_testing.h"
#include "tests/engine/kernels/nd.h"

namespace chargrad::kernels {
namespace {

using testing::binary_cases;
using testing::for_each_index;
using testing::Nd;
using testing::same_for_any_threads;
using testing::Sizes;
using testing::space_of;

template <class S>
class Elementwise : public ::testing::Test {};
using Numbers = ::testing::Types<float, double, int64_t>;
TYPED_TEST_SUITE(Elementwise, Numbers);

// Runs a kernel of two inputs on every layout and compares each element with the formula, exactly:
// each is one rounding of the same expression.
template <class Y, class S, class Kernel, class Formula>
void expect_binary(Kernel kernel, Formula formula) {
  for (const auto& c : binary_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes));
    Nd<Y> y(c.sizes);
    Nd<S> a(c.sizes, c.a), b(c.sizes, c.b);
    a.fill(1);
    b.fill(2);
    kernel(space_of(y, a, b), y.data(), static_cast<const S*>(a.data()),
           static_cast<const S*>(b.data()));
    for_each_index(c.sizes, [&](const Sizes& index) {
      ASSERT_EQ(y[index], formula(a[index], b[index])) << ::testing::PrintToString(index);
    });
  }
}

TYPED_TEST(Elementwise, Arithmetic) {
  using S = TypeParam;
  expect_binary<S, S>(add<S, S>, [](S a, S b) { return a + b; });
  expect_binary<S, S>(sub<S, S>, [](S a, S b) { return a - b; });
  expect_binary<S, S>(mul<S, S>, [](S a, S b) { return a * b; });
  expect_binary<S, S>(maximum<S>, [](S a, S b) { return a < b ? b : a; });
  expect_binary<S, S>(minimum<S>, [](S a, S b) { return a < b ? a : b; });
}

// Sums and products of bfloat16 and float: in float, and rounded where the result is bfloat16.
template <class A, class B>
void expect_mixed() {
  using S = Sum<A, B>;
  const auto check = [](auto kernel, auto formula) {
    for (const auto& c : binary_cases()) {
      SCOPED_TRACE(::testing::PrintToString(c.sizes));
      Nd<S> y(c.sizes);
      Nd<A> a(c.sizes, c.a);
      Nd<B> b(c.sizes, c.b);
      a.fill(1);
      b.fill(2);
      for (int64_t i = 0; i < b.count; ++i) {
        b.data()[i] = b.data()[i] * 1.375f;  // so that bfloat16 results need rounding
      }
      kernel(space_of(y, a, b), y.data(), a.data(), b.data());
      for_each_index(c.sizes, [&](const Sizes& index) {
        const float u = a[index], v = b[index];
        ASSERT_EQ(y[index], static_cast<S>(formula(u, v))) << ::testing::PrintToString(index);
      });
    }
  };
  check(add<A, B>, [](float u, float v) { return u + v; });
  check(sub<A, B>, [](float u, float v) { return u - v; });
  check(mul<A, B>, [](float u, float v) { return u * v; });
}

TEST(ElementwiseMixed, AddSubMul) {
  expect_mixed<bfloat16, bfloat16>();
  expect_mixed<float, bfloat16>();
  expect_mixed<bfloat16, float>();
}

TEST(ElementwiseMixed, NanAndInfinityStayAndLargeSumsOverflow) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  // 35 elements: vectors and a rest.
  const auto sum_of = [](float a, float b) {
    const std::vector<bfloat16> x(35, a), y(35, b);
    std::vector<bfloat16> z(35);
    add(Strided<3>::contiguous(35), z.data(), x.data(), y.data());
    EXPECT_TRUE(std::all_of(z.begin(), z.end(), [&](bfloat16 v) { return v.bits == z[0].bits; }));
    return static_cast<float>(z[0]);
  };
  EXPECT_EQ(sum_of(inf, 1), inf);
  EXPECT_EQ(sum_of(3e38f, 3e38f), inf);
  EXPECT_TRUE(std::isnan(sum_of(nan, 1)));
  EXPECT_TRUE(std::isnan(sum_of(inf, -inf)));
}

TYPED_TEST(Elementwise, Comparisons) {
  using S = TypeParam;
  expect_binary<bool, S>(eq<S>, [](S a, S b) { return a == b; });
  expect_binary<bool, S>(ne<S>, [](S a, S b) { return a != b; });
  expect_binary<bool, S>(lt<S>, [](S a, S b) { return a < b; });
  expect_binary<bool, S>(le<S>, [](S a, S b) { return a <= b; });
  expect_binary<bool, S>(gt<S>, [](S a, S b) { return a > b; });
  expect_binary<bool, S>(ge<S>, [](S a, S b) { return a >= b; });
}

TYPED_TEST(Elementwise, NegAbsClamp) {
  using S = TypeParam;
  for (const auto& c : binary_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes));
    Nd<S> y(c.sizes), x(c.sizes, c.a);
    x.fill(3);
    const auto expect = [&](auto formula) {
      for_each_index(c.sizes, [&](const Sizes& index) { ASSERT_EQ(y[index], formula(x[index])); });
    };
    const auto space = space_of(y, x);
    neg<S>(space, y.data(), x.data());
    expect([](S v) { return S{0} - v; });
    abs<S>(space, y.data(), x.data());
    expect([](S v) { return v < 0 ? S{0} - v : v; });
    clamp<S>(space, y.data(), x.data(), S{-1}, S{1});
    expect([](S v) { return v < -1 ? S{-1} : v > 1 ? S{1} : v; });
    clamp<S>(space, y.data(), x.data(), S{1}, S{-1});  // crossed bounds: the upper one
    expect([](S /*v*/) { return S{-1}; });
  }
}

TYPED_TEST(Elementwise, OneNumberBesideAnArray) {
  using S = TypeParam;
  const S x[3] = {1, 2, 3}, two = 2;
  S y[3];
  const Sizes sizes{3}, one{1}, zero{0};
  mul<S, S>(Strided<3>(sizes, {one, one, zero}), y, x, &two);
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[1], 4);
  EXPECT_EQ(y[2], 6);
}

template <class S>
class ElementwiseFloating : public ::testing::Test {};
using Floating = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ElementwiseFloating, Floating);

TYPED_TEST(ElementwiseFloating, Div) {
  using S = TypeParam;
  for (const auto& c : binary_cases()) {
    Nd<S> y(c.sizes), a(c.sizes, c.a), b(c.sizes, c.b);
    a.fill(1);
    b.fill(2);
    for (int64_t i = 0; i < b.count; ++i) {
      b.data()[i] += S{2.0625};  // no zeros
    }
    div<S>(space_of(y, a, b), y.data(), a.data(), b.data());
    for_each_index(c.sizes, [&](const Sizes& index) { ASSERT_EQ(y[index], a[index] / b[index]); });
  }
}

TYPED_TEST(ElementwiseFloating, NanOnEitherSideStays) {
  using S = TypeParam;
  const S nan = std::numeric_limits<S>::quiet_NaN(), inf = std::numeric_limits<S>::infinity();
  // 35 elements: the vectorised part and its rest.
  std::vector<S> a(35, nan), b(35, S{1}), y(35);
  const auto all = [&](auto f) {
    return std::all_of(y.begin(), y.end(), [&](S v) { return f(v); });
  };
  const auto is_nan = [](S v) { return v != v; };
  const auto space = Strided<3>::contiguous(35);
  maximum<S>(space, y.data(), a.data(), b.data());
  EXPECT_TRUE(all(is_nan));
  maximum<S>(space, y.data(), b.data(), a.data());
  EXPECT_TRUE(all(is_nan));
  minimum<S>(space, y.data(), a.data(), b.data());
  EXPECT_TRUE(all(is_nan));
  minimum<S>(space, y.data(), b.data(), a.data());
  EXPECT_TRUE(all(is_nan));
  clamp<S>(Strided<2>::contiguous(35), y.data(), a.data(), S{-1}, S{1});
  EXPECT_TRUE(all(is_nan));
  clamp<S>(Strided<2>::contiguous(35), y.data(), b.data(), -inf, inf);
  EXPECT_TRUE(all([](S v) { return v == 1; }));
}

TYPED_TEST(ElementwiseFloating, ComparisonsWithNan) {
  using S = TypeParam;
  const S nan = std::numeric_limits<S>::quiet_NaN(), one = 1;
  bool y = true;
  const auto space = Strided<3>::contiguous(1);
  eq<S>(space, &y, &nan, &nan);
  EXPECT_FALSE(y);
  ne<S>(space, &y, &nan, &nan);
  EXPECT_TRUE(y);
  le<S>(space, &y, &nan, &one);
  EXPECT_FALSE(y);
  ge<S>(space, &y, &nan, &one);
  EXPECT_FALSE(y);
}

TYPED_TEST(ElementwiseFloating, PowAgreesWithTheLibrary) {
  using S = TypeParam;
  const std::vector<S> x{S{0.25}, S{1}, S{1.7}, S{3}, S{100}};
  std::vector<S> y(x.size());
  for (const double e : {0.0, 1.0, 2.0, 3.0, 4.0, 0.5, -0.5, -1.0, -2.0, -3.0, 1.5}) {
    pow<S>(Strided<2>::contiguous(5), y.data(), x.data(), e);
    std::vector<double> exact;
    exact.reserve(x.size());
    for (const S value : x) {
      exact.push_back(std::pow(static_cast<double>(value), e));
    }
    // At most three roundings of half a unit each, and the library's own.
    EXPECT_TRUE(near(y, exact, 0, 2.5 * std::numeric_limits<S>::epsilon())) << "exponent " << e;
  }
  const S negative = -2;
  S result = 0;
  pow<S>(Strided<2>::contiguous(1), &result, &negative, 3);
  EXPECT_EQ(result, -8);
}

TEST(ElementwiseInteger, PowByProducts) {
  const int64_t x[4] = {0, 1, -3, 10};
  int64_t y[4];
  pow(Strided<2>::contiguous(4), y, x, int64_t{5});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], -243);
  EXPECT_EQ(y[3], 100000);
  pow(Strided<2>::contiguous(4), y, x, int64_t{0});
  EXPECT_EQ(y[0], 1);
}

TEST(ElementwiseInteger, WrapsAround) {
  const int64_t big = std::numeric_limits<int64_t>::max(), one = 1;
  int64_t y = 0;
  add<int64_t, int64_t>(Strided<3>::contiguous(1), &y, &big, &one);
  EXPECT_EQ(y, std::numeric_limits<int64_t>::min());
}

TEST(Where, EveryTypeAndLayout) {
  const auto check = [](auto zero) {
    using S = decltype(zero);
    for (const auto& c : binary_cases()) {
      Nd<S> y(c.sizes), a(c.sizes, c.a), b(c.sizes, c.b);
      Nd<bool> cond(c.sizes, c.b);
      Nd<float> numbers(c.sizes);
      a.fill(1);
      b.fill(2);
      std::mt19937 engine(7);
      for (int64_t i = 0; i < cond.count; ++i) {
        cond.data()[i] = engine() % 2 == 0;
      }
      where<S>(space_of(y, cond, a, b), y.data(), cond.data(), a.data(), b.data());
      for_each_index(c.sizes, [&](const Sizes& index) {
        ASSERT_EQ(y[index], cond[index] ? a[index] : b[index]);
      });
    }
  };
  check(0.0f);
  check(0.0);
  check(int64_t{0});
  check(bfloat16(0.0f));
  check(false);
}

TYPED_TEST(ElementwiseFloating, MaximumSplitsTheGradientOfATie) {
  using S = TypeParam;
  const S nan = std::numeric_limits<S>::quiet_NaN();
  const S a[4] = {1, 2, 3, nan}, b[4] = {2, 2, 2, 2}, dy[4] = {10, 20, 30, 40};
  S da[4], db[4];
  const auto space = Strided<4>::contiguous(4);
  maximum_backward<S>(space, da, dy, a, b);
  maximum_backward<S>(space, db, dy, b, a);
  EXPECT_EQ(std::vector<S>(da, da + 4), (std::vector<S>{0, 10, 30, 40}));
  EXPECT_EQ(std::vector<S>(db, db + 4), (std::vector<S>{10, 10, 0, 40}));
  minimum_backward<S>(space, da, dy, a, b);
  minimum_backward<S>(space, db, dy, b, a);
  EXPECT_EQ(std::vector<S>(da, da + 4), (std::vector<S>{10, 10, 0, 40}));
  EXPECT_EQ(std::vector<S>(db, db + 4), (std::vector<S>{0, 10, 30, 40}));
}

TYPED_TEST(ElementwiseFloating, AbsAndClampGradientsAtTheEdges) {
  using S = TypeParam;
  const S x[5] = {-2, -1, 0, 1, 2}, dy[5] = {1, 2, 3, 4, 5};
  S dx[5];
  abs_backward<S>(Strided<3>::contiguous(5), dx, dy, x);
  EXPECT_EQ(std::vector<S>(dx, dx + 5), (std::vector<S>{-1, -2, 0, 4, 5}));
  clamp_backward<S>(Strided<3>::contiguous(5), dx, dy, x, S{-1}, S{1});
  EXPECT_EQ(std::vector<S>(dx, dx + 5), (std::vector<S>{0, 2, 3, 4, 0}));
}

TYPED_TEST(ElementwiseFloating, DivAndPowGradients) {
  using S = TypeParam;
  const S a = 3, b = -4, dy = 2;
  S out = 0;
  div_backward<S>(Strided<4>::contiguous(1), &out, &dy, &a, &b);
  EXPECT_EQ(out, S{-0.375});  // -2 * 3 / 16
  for (const double e : {1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, 1.5}) {
    pow_backward<S>(Strided<3>::contiguous(1), &out, &dy, &a, e);
    // Four roundings and the library's.
    const double exact = 2 * e * std::pow(3.0, e - 1);
    EXPECT_TRUE(near(std::vector<S>{out}, {exact}, 0, 4 * std::numeric_limits<S>::epsilon())) << e;
  }
  const S zero = 0;
  pow_backward<S>(Strided<3>::contiguous(1), &out, &dy, &zero, 0);
  EXPECT_EQ(out, 0);
}

TEST(ElementwiseThreads, SameBitsForAnyNumber) {
  const Sizes sizes{37, 41, 43};
  Nd<float> a(sizes), b(sizes, {{2, 0, 1}});
  a.fill(1);
  b.fill(2);
  EXPECT_TRUE(same_for_any_threads([&] {
    std::vector<float> y(static_cast<size_t>(a.count));
    Nd<float> shape(sizes);
    mul<float, float>(space_of(shape, a, b), y.data(), a.data(), b.data());
    return y;
  }));
}

}  // namespace
}  // namespace chargrad::kernels
