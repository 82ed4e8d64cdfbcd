#include "engine/kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/engine/kernels/kernel_testing.h"
#include "tests/engine/kernels/nd.h"

namespace chargrad::kernels {
namespace {

using testing::for_each_index;
using testing::Layout;
using testing::Nd;
using testing::same_for_any_threads;
using testing::Sizes;

template <class S>
class Reduce : public ::testing::Test {};
using Numbers = ::testing::Types<float, double, int64_t>;
TYPED_TEST_SUITE(Reduce, Numbers);

struct Case {
  Sizes sizes;
  Layout layout;
  Sizes dims;
};

std::vector<Case> cases() {
  return {
      {{}, {}, {}},
      {{7}, {}, {}},
      {{7}, {}, {0}},
      {{1}, {}, {0}},
      {{100}, {}, {0}},
      {{3, 5}, {}, {0}},
      {{3, 5}, {}, {1}},
      {{3, 1, 5}, {}, {1}},
      {{2, 3, 4}, {}, {0, 2}},
      {{2, 3, 4}, {}, {1}},
      {{2, 3, 4}, {}, {0, 1, 2}},
      {{2, 3, 0}, {}, {0}},
      {{9, 33, 5}, {{2, 0, 1}}, {1}},
      {{9, 33, 5}, {{2, 0, 1}}, {0, 2}},
      {{9, 33, 5}, {{}, {}, 2}, {1, 2}},
      {{9, 33, 5}, {{}, {false, true, false}}, {1}},
      {{1027, 37}, {}, {0}},        // several parts going across, a rest of rows
      {{1027, 3}, {}, {0}},         // few columns
      {{3, 600, 520}, {}, {1}},     // several blocks of columns
      {{2, 70001}, {}, {1}},        // several parts going along
      {{5, 70001}, {{1, 0}}, {1}},  // the same, not dense
      {{300, 7, 31}, {{2, 1, 0}}, {0, 1}},
  };
}

// The elements that make each output, in row-major order of both.
template <class S>
std::vector<std::vector<S>> groups(Nd<S>& x, const Sizes& dims) {
  Sizes kept = x.sizes;
  for (const int64_t d : dims) {
    kept[static_cast<size_t>(d)] = 1;
  }
  std::vector<std::vector<S>> out(static_cast<size_t>(testing::product(kept)));
  for_each_index(x.sizes, [&](const Sizes& index) {
    int64_t o = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      o = o * kept[d] + (kept[d] == 1 ? 0 : index[d]);
    }
    out[static_cast<size_t>(o)].push_back(x[index]);
  });
  return out;
}

// fill() draws eighths below 2: their sums and squares are exact in double, so that the expected
// value is the exact one, whatever the order, rounded once.
TYPED_TEST(Reduce, SumMeanAmaxAmin) {
  using S = TypeParam;
  for (const Case& c : cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes) + ::testing::PrintToString(c.dims));
    Nd<S> x(c.sizes, c.layout);
    x.fill(11);
    const Reduction r(x.sizes, x.strides, c.dims);
    const auto expected = groups(x, c.dims);
    ASSERT_EQ(r.outputs(), static_cast<int64_t>(expected.size()));
    std::vector<S> y(expected.size());
    sum<S, S>(r, x.data(), y.data());
    for (size_t o = 0; o < y.size(); ++o) {
      const double exact = std::accumulate(expected[o].begin(), expected[o].end(), 0.0);
      ASSERT_EQ(y[o], static_cast<S>(exact)) << o;
    }
    if (!std::is_same_v<S, int64_t>) {
      sum<S, S>(r, x.data(), y.data(), 3.0);
      for (size_t o = 0; o < y.size(); ++o) {
        const double exact = std::accumulate(expected[o].begin(), expected[o].end(), 0.0);
        ASSERT_EQ(y[o], static_cast<S>(exact / 3)) << o;
      }
    }
    if (r.count() == 0) {
      continue;
    }
    amax<S>(r, x.data(), y.data());
    for (size_t o = 0; o < y.size(); ++o) {
      ASSERT_EQ(y[o], *std::max_element(expected[o].begin(), expected[o].end())) << o;
    }
    amin<S>(r, x.data(), y.data());
    for (size_t o = 0; o < y.size(); ++o) {
      ASSERT_EQ(y[o], *std::min_element(expected[o].begin(), expected[o].end())) << o;
    }
  }
}

// The same exact sums of bfloat16, rounded once to it or to float.
TEST(ReduceBFloat16, SumAndMeanAreRoundedOnce) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes) + ::testing::PrintToString(c.dims));
    Nd<bfloat16> x(c.sizes, c.layout);
    x.fill(12);
    const Reduction r(x.sizes, x.strides, c.dims);
    const auto expected = groups(x, c.dims);
    std::vector<bfloat16> narrow(expected.size());
    std::vector<float> wide(expected.size());
    sum(r, x.data(), narrow.data());
    sum(r, x.data(), wide.data(), 3.0);
    for (size_t o = 0; o < wide.size(); ++o) {
      double exact = 0;
      for (const bfloat16 value : expected[o]) {
        exact += value;
      }
      ASSERT_EQ(narrow[o].bits, static_cast<bfloat16>(exact).bits) << o;
      ASSERT_EQ(wide[o], static_cast<float>(exact / 3)) << o;
    }
  }
}

TYPED_TEST(Reduce, EmptySumsAreZero) {
  using S = TypeParam;
  const Nd<S> x({3, 0, 4});
  std::vector<S> y(12, S{7});
  sum<S, S>(Reduction(x.sizes, x.strides, Sizes{1}), x.memory.get(), y.data());
  EXPECT_EQ(y, std::vector<S>(12, S{0}));
}

TEST(ReduceFloat, VarianceIsTheTwoPassFormulaInDouble) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes) + ::testing::PrintToString(c.dims));
    Nd<float> x(c.sizes, c.layout);
    x.fill(12);
    const auto expected = groups(x, c.dims);
    std::vector<float> y(expected.size());
    variance<float>(Reduction(x.sizes, x.strides, c.dims), x.data(), y.data(), 4);
    std::vector<double> exact(y.size());
    for (size_t o = 0; o < y.size(); ++o) {
      double mean = 0;
      for (const float v : expected[o]) {
        mean += v / static_cast<double>(expected[o].size());
      }
      for (const float v : expected[o]) {
        exact[o] += (v - mean) * (v - mean) / 4;
      }
      // Equal elements: up to 33 roundings of the mean, each below 2^-52, squared and summed.
      exact[o] = exact[o] < 1e-26 ? 0 : exact[o];
    }
    // One rounding to float: half a unit.
    ASSERT_TRUE(near(y, exact, 1e-26, 0x1p-23));
  }
}

TEST(ReduceFloat, ALongSumIsRoundedOnce) {
  const int64_t n = 1 << 20;
  std::vector<float> x(static_cast<size_t>(n), 0.1f);
  float y = 0;
  sum<float, float>(Reduction(Sizes{n}, Sizes{1}, Sizes{0}), x.data(), &y);
  EXPECT_EQ(y, static_cast<float>(static_cast<double>(0.1f) * n));
  // One large element does not swallow the small ones.
  x[0] = 1e8f;
  sum<float, float>(Reduction(Sizes{n}, Sizes{1}, Sizes{0}), x.data(), &y);
  EXPECT_EQ(y, static_cast<float>(1e8 + static_cast<double>(0.1f) * (n - 1)));
}

TEST(ReduceFloat, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {3, 40}) {
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      Nd<float> x({n, 12});
      x.fill(1);
      for (int64_t c = 0; c < 12; ++c) {
        x[{at, c}] = nan;
      }
      float y[40];
      for (const Sizes& dims : {Sizes{0}, Sizes{0, 1}}) {
        amax<float>(Reduction(x.sizes, x.strides, dims), x.data(), y);
        EXPECT_TRUE(std::isnan(y[0]));
        amin<float>(Reduction(x.sizes, x.strides, dims), x.data(), y);
        EXPECT_TRUE(std::isnan(y[0]));
      }
    }
  }
}

TEST(ReduceFloat, ExtremesOfInfinitiesOnly) {
  const float inf = std::numeric_limits<float>::infinity();
  const float low[2] = {-inf, -inf}, high[2] = {inf, inf};
  const Reduction r(Sizes{2}, Sizes{1}, Sizes{0});
  float y = 0;
  amax<float>(r, low, &y);
  EXPECT_EQ(y, -inf);
  amin<float>(r, high, &y);
  EXPECT_EQ(y, inf);
}

TEST(ReduceFloat, ToShapeUndoesBroadcasting) {
  Nd<float> dy({2, 3, 4});
  dy.fill(3);
  const auto back = [&](const Sizes& to) {
    const Reduction r = Reduction::to_shape(dy.sizes, dy.strides, to);
    std::vector<float> dx(static_cast<size_t>(r.outputs()));
    EXPECT_EQ(r.outputs(), testing::product(to));
    sum<float, float>(r, dy.data(), dx.data());
    return dx;
  };
  const auto total = [&](auto keep) {
    float acc = 0;
    for_each_index(dy.sizes, [&](const Sizes& i) { acc += keep(i) ? dy[i] : 0; });
    return acc;
  };
  EXPECT_EQ(back({4})[1], total([](const Sizes& i) { return i[2] == 1; }));
  EXPECT_EQ(back({3, 1})[2], total([](const Sizes& i) { return i[1] == 2; }));
  EXPECT_EQ(back({2, 1, 4})[5], total([](const Sizes& i) { return i[0] == 1 && i[2] == 1; }));
  EXPECT_EQ(back({})[0], total([](const Sizes& /*i*/) { return true; }));
  EXPECT_EQ(back({2, 3, 4})[23], dy.data()[23]);
}

TYPED_TEST(Reduce, IndexOfTheFirstExtreme) {
  using S = TypeParam;
  for (const Case& c : cases()) {
    if (c.dims.size() != 1) {
      continue;
    }
    SCOPED_TRACE(::testing::PrintToString(c.sizes) + ::testing::PrintToString(c.dims));
    Nd<S> x(c.sizes, c.layout);
    x.fill(13);
    const Reduction r(x.sizes, x.strides, c.dims);
    const auto d = static_cast<size_t>(c.dims[0]);
    const auto expected = groups(x, c.dims);
    std::vector<S> y(expected.size());
    std::vector<int64_t> index(expected.size());
    const auto check = [&](auto find) {
      for (size_t o = 0; o < y.size(); ++o) {
        const auto at = find(expected[o].begin(), expected[o].end());
        ASSERT_EQ(index[o], at - expected[o].begin()) << o;
        ASSERT_EQ(y[o], *at) << o;
      }
    };
    max_index<S>(r.kept, x.sizes[d], x.strides[d], x.data(), y.data(), index.data());
    check([](auto begin, auto end) { return std::max_element(begin, end); });
    min_index<S>(r.kept, x.sizes[d], x.strides[d], x.data(), y.data(), index.data());
    check([](auto begin, auto end) { return std::min_element(begin, end); });
    const auto without_values = [&] {
      std::vector<int64_t> again(expected.size(), -1);
      min_index<S>(r.kept, x.sizes[d], x.strides[d], x.data(), nullptr, again.data());
      return again;
    };
    EXPECT_EQ(without_values(), index);
  }
}

TEST(ReduceFloat, TheFirstNanIsTheIndex) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Nd<float> x({5, 3});
  x.fill(1);
  for (int64_t c = 0; c < 3; ++c) {
    x[{2, c}] = x[{4, c}] = nan;
  }
  float y[3];
  int64_t index[3];
  const Reduction down(x.sizes, x.strides, Sizes{0});  // side by side
  max_index<float>(down.kept, 5, 3, x.data(), y, index);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(index[1], 2);
  const float row[4] = {1, nan, 3, nan};
  min_index<float>(Reduction(Sizes{4}, Sizes{1}, Sizes{0}).kept, 4, 1, row, y, index);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(index[0], 1);
}

TEST(ReduceFloat, CumsumIsOneChainOfFloatAdditions) {
  const float x[6] = {0.1f, 0.2f, 0.3f, 1e8f, 1, -1e8f};
  float y[6];
  cumsum<float>(x, y, 2, 3);
  EXPECT_EQ(y[2], (0.1f + 0.2f) + 0.3f);
  EXPECT_EQ(y[4], 1e8f);  // 1 is below half a unit of 1e8
  EXPECT_EQ(y[5], 0.0f);
  cumsum<float>(x, y, 0, 3);
  cumsum<float>(x, y, 3, 0);
}

TEST(ReduceThreads, SameBitsForAnyNumber) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  for (const Case& c : cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.sizes) + ::testing::PrintToString(c.dims));
    Nd<float> x(c.sizes, c.layout);
    std::generate_n(x.data(), x.count, [&] { return normal(engine); });
    const Reduction r(x.sizes, x.strides, c.dims);
    EXPECT_TRUE(same_for_any_threads([&] {
      std::vector<float> y(static_cast<size_t>(2 * r.outputs()));
      sum<float, float>(r, x.data(), y.data());
      variance<float>(r, x.data(), y.data() + r.outputs(), 2);
      return y;
    }));
  }
}

}  // namespace
}  // namespace chargrad::kernels
