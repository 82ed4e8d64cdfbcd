#include "engine/kernels/copy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/kernels/nd.h"

namespace chargrad::kernels {
namespace {

using testing::binary_cases;
using testing::for_each_index;
using testing::Layout;
using testing::Nd;
using testing::same_for_any_threads;
using testing::Sizes;
using testing::space_of;

template <class Y, class X>
Y converted(X x) {
  Y y{};
  copy<Y, X>(Strided<2>::contiguous(1), &y, &x);
  return y;
}

TEST(Copy, EveryLayoutOfSourceAndTarget) {
  std::vector<std::pair<Sizes, std::pair<Layout, Layout>>> cases;
  for (const auto& c : binary_cases()) {
    cases.push_back({c.sizes, {{}, c.a}});
    cases.push_back({c.sizes, {{}, c.b}});
    if (c.a.repeat.empty()) {
      cases.push_back({c.sizes, {c.a, c.b}});
    }
  }
  // Transposed sources on both sides of the tile's edges and of a parallel chunk.
  for (const int64_t rows : {2, 33, 127, 128, 129, 300}) {
    cases.push_back({{rows, 65}, {{}, {{1, 0}}}});
    cases.push_back({{3, rows, 2, 67}, {{}, {{0, 3, 2, 1}}}});
    cases.push_back({{rows, 5, 33}, {{{1, 0, 2}}, {{1, 2, 0}}}});
  }
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.first));
    Nd<float> y(c.first, c.second.first), x(c.first, c.second.second);
    x.fill(5);
    copy<float, float>(space_of(y, x), y.data(), x.data());
    Nd<bfloat16> narrow(c.first, c.second.first);
    copy<bfloat16, float>(space_of(narrow, x), narrow.data(), x.data());
    for_each_index(c.first, [&](const Sizes& index) {
      ASSERT_EQ(y[index], x[index]);
      ASSERT_EQ(narrow[index], x[index]);  // eighths below 2 are exact in bfloat16
    });
  }
}

TEST(Copy, ToBfloat16RoundsToNearestEven) {
  const auto bits = [](float x) { return converted<bfloat16>(x).bits; };
  EXPECT_EQ(bits(1.0f), 0x3f80);
  EXPECT_EQ(bits(std::ldexp(257.0f, -8)), 0x3f80);  // 1 + 1/256: tie, down to even
  EXPECT_EQ(bits(std::ldexp(259.0f, -8)), 0x3f82);  // 1 + 3/256: tie, up to even
  EXPECT_EQ(bits(std::nextafter(std::ldexp(257.0f, -8), 2.0f)), 0x3f81);
  EXPECT_EQ(bits(std::numeric_limits<float>::max()), 0x7f80);  // to infinity
  EXPECT_EQ(bits(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(static_cast<float>(converted<bfloat16>(std::nanf("")))));
}

TEST(Copy, ToInt64CutsTheFraction) {
  EXPECT_EQ(converted<int64_t>(2.9f), 2);
  EXPECT_EQ(converted<int64_t>(-2.9), -2);
  EXPECT_EQ(converted<int64_t>(bfloat16(-1.5f)), -1);
  EXPECT_EQ(converted<int64_t>(true), 1);
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(converted<int64_t>(std::nan("")), least);
  EXPECT_EQ(converted<int64_t>(1e30), least);
  EXPECT_EQ(converted<int64_t>(-1e30f), least);
  EXPECT_EQ(converted<int64_t>(-9223372036854775808.0), least);
}

TEST(Copy, ToBoolAsksWhetherNotZero) {
  EXPECT_FALSE(converted<bool>(0.0f));
  EXPECT_FALSE(converted<bool>(-0.0));
  EXPECT_TRUE(converted<bool>(0.25f));
  EXPECT_TRUE(converted<bool>(std::nan("")));
  EXPECT_TRUE(converted<bool>(bfloat16(-3.0f)));
  EXPECT_FALSE(converted<bool>(bfloat16(-0.0f)));
  EXPECT_TRUE(converted<bool>(int64_t{1} << 40));
}

TEST(Copy, BetweenFloatingTypes) {
  EXPECT_EQ(converted<float>(0.1), 0.1f);
  EXPECT_EQ(converted<double>(0.1f), static_cast<double>(0.1f));
  EXPECT_EQ(converted<float>(bfloat16(1.5f)), 1.5f);
  EXPECT_EQ(converted<double>(bfloat16(-2.0f)), -2.0);
  EXPECT_EQ(converted<bfloat16>(0.1).bits, bfloat16(0.1f).bits);
  EXPECT_EQ(converted<float>((int64_t{1} << 24) + 1), 16777216.0f);
  EXPECT_EQ(converted<double>(int64_t{-7}), -7.0);
  EXPECT_EQ(converted<bfloat16>(int64_t{3}), 3.0f);
  EXPECT_EQ(converted<float>(true), 1.0f);
  EXPECT_EQ(converted<double>(false), 0.0);
  EXPECT_EQ(converted<bfloat16>(true), 1.0f);
  EXPECT_EQ(converted<bool>(true), true);
}

TEST(Copy, FillWritesTheViewOnly) {
  for (const auto& c : binary_cases()) {
    const Layout gaps{c.a.order, {}, 2};
    Nd<bool> flags(c.sizes, gaps);
    Nd<double> y(c.sizes, gaps);
    std::fill_n(y.data(), y.count, 1.0);
    fill<double>(space_of(y), y.data(), 5.0);
    fill<bool>(space_of(flags), flags.data(), true);
    double total = 0;
    for_each_index(c.sizes, [&](const Sizes& index) {
      ASSERT_EQ(y[index], 5.0);
      ASSERT_TRUE(flags[index]);
    });
    for (int64_t i = 0; i < y.count; ++i) {
      total += y.data()[i];
    }
    EXPECT_EQ(total, 5.0 * static_cast<double>(testing::product(c.sizes)) +
                         static_cast<double>(y.count - testing::product(c.sizes)));
  }
}

TEST(Copy, SameBitsForAnyThreads) {
  const Sizes sizes{5, 301, 203};
  Nd<float> x(sizes, {{0, 2, 1}});
  x.fill(1);
  EXPECT_TRUE(same_for_any_threads([&] {
    Nd<float> shape(sizes);
    std::vector<bfloat16> y(static_cast<size_t>(x.count));
    copy<bfloat16, float>(space_of(shape, x), y.data(), x.data());
    return y;
  }));
}

}  // namespace
}  // namespace chargrad::kernels
