// The comparisons of the kernel tests themselves: on every tier they catch a result that is 1 %
// off, and refuse a tolerance that would not.
#include "tests/engine/kernels/kernel_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/engine/kernels/gemm_testing.h"

namespace chargrad::kernels {
namespace {

using testing::HasSubstr;

TEST(KernelTesting, NearCatchesTheLargestElementOnePercentOff) {
  const std::vector<double> want = {0.5, -4, 1};
  const std::vector<float> right = {0.5f, -4, 1};
  EXPECT_TRUE(near(right, want, 1e-3, 1e-3));
  for (const float factor : {0.99f, 1.01f}) {
    const auto result = near<float>({0.5f, -4 * factor, 1}, want, 1e-3, 1e-3);
    EXPECT_FALSE(result);
    EXPECT_THAT(result.message(),
                HasSubstr("tier " + std::string(tier_name(active_tier())) + ", index 1 of 3: got"));
  }
}

// A bfloat16 that is 1 % off before it is rounded is the next or the one after the next.
TEST(KernelTesting, NearCatchesOnePercentOfEveryBFloat16) {
  for (double want = 1; want < 2; want += 0x1p-10) {
    const auto rounded = [want](double factor) {
      return near<bfloat16>({static_cast<bfloat16>(static_cast<float>(want * factor))}, {want}, 0,
                            kBFloat16Rounding);
    };
    EXPECT_TRUE(rounded(1)) << want;
    EXPECT_FALSE(rounded(0.99)) << want;
    EXPECT_FALSE(rounded(1.01)) << want;
  }
}

TEST(KernelTesting, NearRefusesABlindTolerance) {
  const auto absolute = near<float>({0.5f, -4, 1}, {0.5, -4, 1}, 0.05, 0);
  EXPECT_FALSE(absolute);
  EXPECT_THAT(absolute.message(),
              HasSubstr("index 1 of 3: an error of 1 % of -4 is within the tolerance 0.05"));
  EXPECT_FALSE(near<float>({1}, {1}, 0, 0.011));
  EXPECT_TRUE(near<float>({1}, {1}, 0, 0.011, OnePercent::kPasses));
  // A result that is off already must not come right by 1 %.
  EXPECT_FALSE(near<float>({0.991f}, {1}, 0, 0.0095));
  EXPECT_TRUE(near<float>({0, 0}, {0, 0}, 1, 0));  // Of nothing 1 % is nothing.
}

TEST(KernelTesting, OnePercentIsManyUnitsOfTheLastPlace) {
  for (int exponent = -120; exponent <= 120; exponent += 3) {
    for (const float mantissa : {1.0f, 1.37f, 1.999f}) {
      const float y = std::ldexp(mantissa, exponent);
      EXPECT_GT(ulps(1.01f * y, static_cast<double>(y)), 1e4) << y;
      EXPECT_GT(ulps(0.99f * y, static_cast<double>(y)), 1e4) << y;
    }
  }
}

// expect_product() of a product whose largest result is a factor off.
template <class S, class C>
void compare_product(float factor) {
  static const Matrix<S> a(5, 17, Layout::kRows, 1), b(17, 6, Layout::kColumns, 2);
  std::vector<C> c = run_gemm<S, C>(5, 6, 17, a.view(), b.view(), nullptr);
  C* largest = &c[0];
  for (C& value : c) {
    if (value != kMark<C> &&
        std::abs(static_cast<float>(value)) > std::abs(static_cast<float>(*largest))) {
      largest = &value;
    }
  }
  *largest = static_cast<C>(static_cast<float>(*largest) * factor);
  expect_product(5, 6, 17, a.view(), b.view(), static_cast<const BiasOf<S>*>(nullptr), c,
                 "product");
}

TEST(KernelTesting, ExpectProductCatchesOnePercent) {
  compare_product<float, float>(1);
  compare_product<bfloat16, float>(1);
  compare_product<bfloat16, bfloat16>(1);
  EXPECT_FATAL_FAILURE((compare_product<float, float>(1.01f)), "product, tier");
  EXPECT_FATAL_FAILURE((compare_product<float, float>(0.99f)), "product, tier");
  EXPECT_FATAL_FAILURE((compare_product<bfloat16, float>(1.01f)), "product, tier");
  EXPECT_FATAL_FAILURE((compare_product<bfloat16, bfloat16>(1.01f)), "product, tier");
  EXPECT_FATAL_FAILURE((compare_product<bfloat16, bfloat16>(0.99f)), "product, tier");
}

// 10,001 terms of 1 and -1 that cancel but for one: the tolerance is wider than 1 %.
void compare_cancelling_sum() {
  const int64_t K = 10'001;
  std::vector<float> a(K, 1);
  for (size_t k = 1; k < a.size(); k += 2) {
    a[k] = -1;
  }
  const std::vector<float> b(K, 1), c = {1, kMark<float>, kMark<float>, kMark<float>};
  const MatrixView<float> row{a.data(), K, 1}, column{b.data(), 1, 1};
  expect_product<float, float>(1, 1, K, row, column, nullptr, c, "sum");
}

TEST(KernelTesting, ExpectProductRefusesABlindTolerance) {
  EXPECT_FATAL_FAILURE(compare_cancelling_sum(), "1 % of 1 is within the tolerance");
}

}  // namespace
}  // namespace chargrad::kernels
