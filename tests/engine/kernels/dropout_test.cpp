#include "engine/kernels/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/kernels/dropout_ref.h"
#include "engine/kernels/dropout_rows.h"
#include "engine/threads.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

constexpr DropoutKey kKey = {0x299f31d0a4093822, 0x0370734413198a2e};

template <class S = float>
std::vector<S> numbers(int64_t n) {
  std::vector<S> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 1.0f + static_cast<float>(i) / 7;
  }
  return x;
}

template <class S>
std::vector<S> mask(int64_t n, double p, DropoutKey key, int64_t start = 0) {
  std::vector<S> m(static_cast<size_t>(n));
  dropout_mask(m.data(), n, p, key, start);
  return m;
}

// The third known answer of philox_test.cpp, whose words are 0xd1.., 0x94.., 0x50.., 0x24..: the
// elements of that block under seed, call and index, against thresholds between them.
TEST(Dropout, WordsAreThoseOfTheKeyAtTheBlock) {
  constexpr auto kStart = static_cast<int64_t>(0x05a308d3243f6a88 * 4);
  // (block, call) and seed as 32-bit words, low first: the counter and key of the generator.
  const PhiloxCounter words =
      philox4x32_10({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (const double p : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    std::vector<double> expected;
    for (const uint32_t word : words) {
      expected.push_back(word * 0x1p-32 < p ? 0.0 : 1 / (1 - p));
    }
    EXPECT_EQ(mask<double>(4, p, kKey, kStart), expected) << p;
  }
}

template <class S>
void expect_every_length_and_start() {
  for (const double p : {0.0, 0.2, 0.5, 1.0}) {
    for (const int64_t start : {0, 1, 2, 3, 4, 7, 1000}) {
      for (int64_t n = 0; n <= 100; ++n) {
        // One more element at each end, which must stay as it is.
        std::vector<S> got = numbers<S>(n + 2), expected = got;
        dropout(got.data() + 1, got.data() + 1, n, p, kKey, start);
        ref::dropout(expected.data() + 1, expected.data() + 1, n, p, kKey, start);
        ASSERT_EQ(got, expected) << "p " << p << ", start " << start << ", n " << n;
      }
    }
  }
}

TEST(Dropout, EveryLengthAndStartIsTheReferences) {
  expect_every_length_and_start<float>();
  expect_every_length_and_start<bfloat16>();
}

TEST(Dropout, ScalesWhatItKeeps) {
  const std::vector<float> x = numbers(1000);
  std::vector<float> y(x.size());
  dropout(x.data(), y.data(), 1000, 0.2, kKey);
  const std::vector<float> m = mask<float>(1000, 0.2, kKey);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_THAT(m[i], testing::AnyOf(0.0f, 1.25f));
    ASSERT_EQ(y[i], x[i] * m[i]) << i;
  }
}

// x / 0.7 rounded to bfloat16 once; a NaN that is dropped is zero.
TEST(Dropout, BFloat16RoundsOnce) {
  std::vector<bfloat16> x = numbers<bfloat16>(1001), y(x.size());
  const std::vector<float> m = mask<float>(1001, 0.3, kKey);
  const auto dropped = static_cast<size_t>(std::find(m.begin(), m.end(), 0.0f) - m.begin());
  x[dropped] = std::nanf("");
  dropout(x.data(), y.data(), 1001, 0.3, kKey);
  EXPECT_EQ(y[dropped], 0);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i != dropped) {
      ASSERT_EQ(y[i].bits, bfloat16(static_cast<float>(x[i]) * m[i]).bits) << i;
    }
  }
}

TEST(Dropout, RowsOfAMaskAreItsParts) {
  const std::vector<double> whole = mask<double>(7 * int64_t{13}, 0.3, kKey);
  for (int64_t row = 0; row < 7; ++row) {
    const std::vector<double> part = mask<double>(13, 0.3, kKey, row * 13);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + row * 13)) << row;
  }
}

TEST(Dropout, FloatAndDoubleSeeTheSameMask) {
  const std::vector<float> m = mask<float>(1001, 0.7, kKey);
  const std::vector<double> wide = mask<double>(1001, 0.7, kKey);
  for (size_t i = 0; i < m.size(); ++i) {
    ASSERT_EQ(m[i] != 0, wide[i] != 0) << i;
  }
}

TEST(Dropout, ThreadsDoNotMatter) {
  constexpr int64_t kLarge = 200003;
  const std::vector<float> x = numbers(kLarge);
  std::vector<float> expected(x.size());
  ref::dropout(x.data(), expected.data(), kLarge, 0.2, kKey, 5);
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<float> y(x.size());
    dropout(x.data(), y.data(), kLarge, 0.2, kKey, 5);
    EXPECT_EQ(y, expected) << threads;
  }
  set_num_threads(0);
}

TEST(Dropout, ProbabilityZeroCopiesAndOneGivesZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1, -2, nan, infinity, 3};
  std::vector<float> y(x.size(), 9.0f);
  dropout(x.data(), y.data(), 5, 1.0, kKey);
  EXPECT_THAT(y, testing::Each(0.0f));
  dropout(x.data(), y.data(), 5, 0.0, kKey);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], -2.0f);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], infinity);
  EXPECT_EQ(y[4], 3.0f);
  // So near to one that no word is large enough.
  dropout(x.data(), y.data(), 5, 1 - 0x1p-40, kKey);
  EXPECT_THAT(y, testing::Each(0.0f));
}

// Kept ones of n elements are binomial: deviation sqrt(n p (1 - p)); five of them allowed.
TEST(Dropout, KeepsTheRightShare) {
  constexpr int64_t kLarge = 1000000;
  for (const double p : {0.001, 0.1, 0.2, 0.5, 0.9}) {
    for (const DropoutKey key : {DropoutKey{1337, 0}, DropoutKey{1337, 1}, DropoutKey{1338, 0}}) {
      const std::vector<float> m = mask<float>(kLarge, p, key);
      const auto kept = static_cast<double>(kLarge - std::count(m.begin(), m.end(), 0.0f));
      EXPECT_NEAR(kept, kLarge * (1 - p), 5 * std::sqrt(kLarge * p * (1 - p)))
          << "p " << p << ", key " << key.seed << " " << key.call;
    }
  }
}

// Two independent masks agree at p^2 + (1-p)^2 of the elements, here at half; deviation
// sqrt(n / 4), five of them allowed. So do a mask and itself shifted.
TEST(Dropout, CallsSeedsAndPlacesAreIndependent) {
  constexpr int64_t kLarge = 100000;
  const std::vector<float> base = mask<float>(kLarge, 0.5, {1337, 0});
  const std::vector<float> others[] = {
      mask<float>(kLarge, 0.5, {1337, 1}),
      mask<float>(kLarge, 0.5, {1338, 0}),
      mask<float>(kLarge, 0.5, {1337, uint64_t{1} << 32}),
      mask<float>(kLarge, 0.5, {1337 + (uint64_t{1} << 32), 0}),
      mask<float>(kLarge, 0.5, {1337, 0}, 1),
      mask<float>(kLarge, 0.5, {1337, 0}, 4),
      mask<float>(kLarge, 0.5, {1337, 0}, int64_t{1} << 34),
  };
  for (const std::vector<float>& other : others) {
    int64_t equal = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      equal += base[i] == other[i] ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(equal), kLarge / 2.0, 5 * std::sqrt(kLarge / 4.0));
  }
}

// With starts and steps that are whole Philox blocks and others that are not, in place, and of one
// row of x for all.
TEST(Dropout, RowsAreThoseOfTheWholeMask) {
  const int64_t rows = 3, cols = 37, y_ld = 41;
  const std::vector<float> x = numbers(rows * y_ld);
  for (const auto& [start, start_ld] : {std::pair<int64_t, int64_t>{8, 64}, {5, 64}, {8, 39}}) {
    for (const int64_t x_ld : {y_ld, int64_t{0}}) {
      std::vector<float> want = x;
      for (int64_t r = 0; r < rows; ++r) {
        dropout(x.data() + r * x_ld, want.data() + r * y_ld, cols, 0.4, {7, 2},
                start + r * start_ld);
      }
      Guarded<float> y(x);
      const float* const from = x_ld == 0 ? x.data() : y.data();
      dropout_rows({rows, cols, from, x_ld, y.data(), y_ld, start, start_ld}, 0.4, {7, 2});
      EXPECT_TRUE(same_bits(y.get(), want)) << start << " " << start_ld << " " << x_ld;
      EXPECT_TRUE(y.intact());
    }
  }
}

}  // namespace
}  // namespace chargrad::kernels
