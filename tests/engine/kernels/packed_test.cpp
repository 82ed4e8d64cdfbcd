#include "engine/kernels/packed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/threads.h"
#include "tests/engine/kernels/gemm_testing.h"

namespace chargrad::kernels {
namespace {

template <class T>
class Packed : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(0); }
};
using PackedTypes =
    testing::Types<Types<float, float>, Types<bfloat16, float>, Types<bfloat16, bfloat16>>;
TYPED_TEST_SUITE(Packed, PackedTypes);

TYPED_TEST(Packed, SameBitsAsTheProductOfTheView) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1},     {37, 17},  {384, 65},
                                               {128, 384}, {33, 130}, {kLongK + 301, 66}};
  uint32_t round = 0;
  for (const auto& [K, N] : sizes) {
    for (const Layout layout : {Layout::kRows, Layout::kColumns, Layout::kBothStrided}) {
      const Matrix<S> b(K, N, layout, 1);
      const auto bias = random_vector<BiasOf<S>>(N, 2);
      const PackedMatrix<S> packed(K, N, b.view());
      ASSERT_EQ(packed.K(), K);
      ASSERT_EQ(packed.N(), N);
      for (const int64_t M :
           K > kLongK ? std::vector<int64_t>{1, 9} : std::vector<int64_t>{1, 2, 7, 25, 100}) {
        const Matrix<S> a(M, K, kLayouts[++round % 5], 3);
        const auto* const use_bias = round % 3 == 0 ? nullptr : bias.data();
        const auto want = run_gemm<S, C>(M, N, K, a.view(), b.view(), use_bias);
        for (const int threads : {1, 3}) {
          set_num_threads(threads);
          std::vector<C> got(want.size(), kMark<C>);
          packed.multiply(M, a.view(), got.data(), N + kPadding, use_bias);
          ASSERT_TRUE(same_bits(got.data(), want.data(), static_cast<int64_t>(want.size())))
              << "M " << M << " N " << N << " K " << K << ", " << threads << " threads";
        }
      }
    }
  }
}

TYPED_TEST(Packed, KeepsNothingOfTheView) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  std::vector<S> b = {S(1), S(2), S(3), S(4)};
  PackedMatrix<S> first(2, 2, {b.data(), 2, 1});
  b.assign(4, S(9));
  const PackedMatrix<S> moved = std::move(first);
  const std::vector<S> a = {S(1), S(10)};
  std::vector<C> c(2);
  moved.multiply(1, {a.data(), 2, 1}, c.data(), 2);
  EXPECT_EQ(c, (std::vector<C>{C(31), C(42)}));
}

// Matrices that share memory, and one larger than what they share; freed in another order.
TYPED_TEST(Packed, SharedMemoryLivesAsLongAsAnyOfThem) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  std::vector<PackedMatrix<S>> matrices;
  for (int i = 1; i <= 40; ++i) {
    const std::vector<S> b(200 * 300, S(static_cast<float>(i)));
    matrices.emplace_back(200, 300, MatrixView<S>{b.data(), 300, 1});
  }
  const std::vector<S> large(int64_t{2100} * 2100, S(50));
  matrices.emplace_back(2100, 2100, MatrixView<S>{large.data(), 2100, 1});
  matrices.erase(matrices.begin(), matrices.begin() + 30);
  for (const PackedMatrix<S>& matrix : matrices) {
    std::vector<S> one(static_cast<size_t>(matrix.K()), S(0));
    one.back() = S(1);
    std::vector<C> c(static_cast<size_t>(matrix.N()));
    matrix.multiply(1, {one.data(), matrix.K(), 1}, c.data(), matrix.N());
    const int value = matrix.K() > 200 ? 50 : 31 + static_cast<int>(&matrix - matrices.data());
    EXPECT_EQ(c, std::vector<C>(c.size(), C(static_cast<float>(value))));
  }
}

TYPED_TEST(Packed, EmptySizes) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const std::vector<BiasOf<S>> bias = {1, 2};
  std::vector<C> c(2, C(9));
  const PackedMatrix<S> no_rows(0, 2, {nullptr, 2, 1});
  no_rows.multiply(1, {nullptr, 0, 1}, c.data(), 2, bias.data());
  EXPECT_EQ(c, (std::vector<C>{C(1), C(2)}));
  const PackedMatrix<S> no_columns(2, 0, {nullptr, 0, 1});
  no_columns.multiply(1, {nullptr, 2, 1}, c.data(), 2);
  EXPECT_EQ(c, (std::vector<C>{C(1), C(2)}));
}

}  // namespace
}  // namespace chargrad::kernels
