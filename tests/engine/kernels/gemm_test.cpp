#include "engine/kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/threads.h"
#include "tests/engine/kernels/gemm_testing.h"

namespace chargrad::kernels {
namespace {

template <class T>
class Gemm : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(0); }
};
TYPED_TEST_SUITE(Gemm, ProductTypes);

// All pairs of sizes around the register tile and the vectors; K, layouts and the bias vary along.
TYPED_TEST(Gemm, OddSizesAndAllLayouts) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const int64_t depths[] = {1, 2, 3, 15, 16, 17, 31, 33, 65, 127, 129};
  uint32_t round = 0;
  for (const int64_t M : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 24, 25, 30}) {
    for (const int64_t N : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 49, 63, 64, 65, 130}) {
      const Layout la = kLayouts[round % 5], lb = kLayouts[round / 5 % 5];
      const int64_t K = depths[round % std::size(depths)];
      const Matrix<S> a(M, K, la, round), b(K, N, lb, round + 1000);
      const std::vector<BiasOf<S>> bias = random_vector<BiasOf<S>>(N, round + 2000);
      const BiasOf<S>* const use_bias = round % 3 == 0 ? nullptr : bias.data();
      const std::string what = "M " + std::to_string(M) + " N " + std::to_string(N) + " K " +
                               std::to_string(K) + " layouts " +
                               std::to_string(static_cast<int>(la)) + " " +
                               std::to_string(static_cast<int>(lb));
      const auto c = run_gemm<S, C>(M, N, K, a.view(), b.view(), use_bias);
      ASSERT_NO_FATAL_FAILURE(expect_product(M, N, K, a.view(), b.view(), use_bias, c, what));
      ++round;
    }
  }
}

// Every pair of layouts on both sides of what one chunk, one pass and one panel hold.
TYPED_TEST(Gemm, SeveralChunksInAllLayouts) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  uint32_t round = 0;
  for (const Layout la : kLayouts) {
    for (const Layout lb : kLayouts) {
      for (const int64_t K : {70, 260, 391}) {
        const int64_t M = 97 + 5 * (round % 4), N = 66 + round % 3;
        const Matrix<S> a(M, K, la, round), b(K, N, lb, round + 1000);
        const std::vector<BiasOf<S>> bias = random_vector<BiasOf<S>>(N, round + 2000);
        const auto c = run_gemm<S, C>(M, N, K, a.view(), b.view(), bias.data());
        ASSERT_NO_FATAL_FAILURE(expect_product(M, N, K, a.view(), b.view(), bias.data(), c,
                                               "round " + std::to_string(round), 300));
        ++round;
      }
    }
  }
}

TYPED_TEST(Gemm, SizesBeyondThePackedBuffers) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  struct Case {
    int64_t M, N, K;
    Layout a, b;
  };
  const Case cases[] = {
      {8200, 3, 2, Layout::kColumns, Layout::kRows},  // Packed A in two parts.
      {30, 8200, 3, Layout::kRows, Layout::kRows},    // Packed B in two parts of N.
      {30, 8200, 3, Layout::kColumns, Layout::kColumns},
      {25, 1100, 2100, Layout::kRows, Layout::kRows},           // Packed B in two parts of K.
      {26, 19, kLongK + 700, Layout::kRows, Layout::kColumns},  // Several chains.
      {27, 20, kLongK + 700, Layout::kColumns, Layout::kRows},
      {5, 17, kLongK + 1, Layout::kRows, Layout::kColumns},
      {5, 16, kLongK + 1, Layout::kRows, Layout::kRows},
  };
  for (const Case& q : cases) {
    if (q.K > 3 && plain_loops<S>()) {
      continue;
    }
    const Matrix<S> a(q.M, q.K, q.a, 1), b(q.K, q.N, q.b, 2);
    const std::vector<BiasOf<S>> bias = random_vector<BiasOf<S>>(q.N, 3);
    const auto c = run_gemm<S, C>(q.M, q.N, q.K, a.view(), b.view(), bias.data());
    ASSERT_NO_FATAL_FAILURE(expect_product(
        q.M, q.N, q.K, a.view(), b.view(), bias.data(), c,
        "M " + std::to_string(q.M) + " N " + std::to_string(q.N) + " K " + std::to_string(q.K),
        400));
  }
}

// Whole vectors of B's rows and A k by k, as in a weight gradient: what is read where it lies, and
// what is just beyond.
TYPED_TEST(Gemm, OperandsReadInPlace) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  if (plain_loops<S>()) {
    GTEST_SKIP() << "they read everything so";
  }
  struct Case {
    int64_t M, N, K;
    Layout a;
  };
  for (const Case& q :
       {Case{128, 128, 300, Layout::kColumns}, Case{65, 96, 768, Layout::kColumns},
        Case{769, 64, 40, Layout::kColumns}, Case{100, 80, 65, Layout::kRows},
        Case{64, 1552, 33, Layout::kColumns}, Case{97, 16, 1025, Layout::kColumns}}) {
    const Matrix<S> a(q.M, q.K, q.a, 1), b(q.K, q.N, Layout::kRows, 2);
    const std::vector<BiasOf<S>> bias = random_vector<BiasOf<S>>(q.N, 3);
    const auto c = run_gemm<S, C>(q.M, q.N, q.K, a.view(), b.view(), bias.data());
    ASSERT_NO_FATAL_FAILURE(expect_product(q.M, q.N, q.K, a.view(), b.view(), bias.data(), c,
                                           "M " + std::to_string(q.M) + " N " + std::to_string(q.N),
                                           400));
  }
}

TYPED_TEST(Gemm, ZeroAndNegativeStrides) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const int64_t M = 31, N = 40, K = 21;
  const std::vector<S> x = random_vector<S>(M * K, 1), y = random_vector<S>(K * N, 2);
  const MatrixView<S> plain_a = {x.data(), K, 1}, plain_b = {y.data(), N, 1};
  const MatrixView<S> same_rows_a = {x.data(), 0, 1}, same_columns_a = {x.data(), 1, 0};
  const MatrixView<S> same_rows_b = {y.data(), 0, 1}, same_columns_b = {y.data(), 1, 0};
  const MatrixView<S> reversed_a = {x.data() + M * K - 1, -K, -1};
  const MatrixView<S> reversed_b = {y.data() + K * N - 1, -N, -1};
  for (const auto& a : {plain_a, same_rows_a, same_columns_a, reversed_a}) {
    for (const auto& b : {plain_b, same_rows_b, same_columns_b, reversed_b}) {
      const auto c = run_gemm<S, C>(M, N, K, a, b, nullptr);
      ASSERT_NO_FATAL_FAILURE(expect_product(M, N, K, a, b, nullptr, c, "strides"));
    }
  }
}

TYPED_TEST(Gemm, EmptySizes) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  const std::vector<BiasOf<S>> bias = {1, 2, 3};
  const std::vector<S> one = {1, 1, 1};
  std::vector<C> c(8, C(9));
  gemm<S, C>(2, 3, 0, {nullptr, 0, 1}, {nullptr, 3, 1}, c.data(), 4, bias.data());
  EXPECT_EQ(c, (std::vector<C>{1, 2, 3, 9, 1, 2, 3, 9}));
  gemm<S, C>(2, 3, 0, {nullptr, 0, 1}, {nullptr, 3, 1}, c.data(), 4);
  EXPECT_EQ(c, (std::vector<C>{0, 0, 0, 9, 0, 0, 0, 9}));

  std::vector<C> untouched(8, C(9));
  gemm<S, C>(0, 3, 2, {nullptr, 2, 1}, {one.data(), 0, 1}, untouched.data(), 4, bias.data());
  gemm<S, C>(2, 0, 3, {one.data(), 0, 1}, {nullptr, 0, 1}, untouched.data(), 4, bias.data());
  gemm_batched<S, C>(0, {0, 0, 0}, 2, 3, 2, {nullptr, 2, 1}, {nullptr, 3, 1}, untouched.data(), 4);
  gemm_batched<S, C>(3, {0, 0, 0}, 0, 3, 2, {nullptr, 2, 1}, {nullptr, 3, 1}, untouched.data(), 4);
  EXPECT_EQ(untouched, std::vector<C>(8, C(9)));
}

// A NaN or an infinity reaches exactly its row or column, though rows of A lie end to end.
TYPED_TEST(Gemm, NonFiniteValuesStayInTheirRowAndColumn) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  for (const int64_t K : {20, 21}) {
    const int64_t M = 30, N = 40;
    std::vector<S> a(static_cast<size_t>(M * K), S(1)), b(static_cast<size_t>(K * N), S(1));
    a[static_cast<size_t>(7 * K)] = std::numeric_limits<float>::quiet_NaN();
    b[5 * N + 33] = std::numeric_limits<float>::infinity();
    const auto c = run_gemm<S, C>(M, N, K, {a.data(), K, 1}, {b.data(), N, 1}, nullptr);
    for (int64_t i = 0; i < M; ++i) {
      for (int64_t j = 0; j < N; ++j) {
        const auto got = static_cast<double>(c[static_cast<size_t>(i * (N + kPadding) + j)]);
        ASSERT_EQ(std::isnan(got), i == 7) << i << ", " << j;
        ASSERT_TRUE(i == 7 || got == (j == 33 ? std::numeric_limits<double>::infinity() : K));
      }
    }
  }
}

TYPED_TEST(Gemm, SameBitsForAnyNumberOfThreads) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  struct Case {
    int64_t M, N, K;
    Layout a, b;
  };
  const Case cases[] = {{200, 130, 300, Layout::kRows, Layout::kColumns},
                        {200, 130, 300, Layout::kRows, Layout::kRows},
                        {150, 65, 600, Layout::kColumns, Layout::kRows},
                        {100, 65, kLongK + 600, Layout::kColumns, Layout::kRows},
                        {1, 500, 400, Layout::kRows, Layout::kColumns}};
  for (const Case& q : cases) {
    if (q.K > 300 && plain_loops<S>()) {
      continue;
    }
    const Matrix<S> a(q.M, q.K, q.a, 1), b(q.K, q.N, q.b, 2);
    set_num_threads(1);
    const auto expected = run_gemm<S, C>(q.M, q.N, q.K, a.view(), b.view(), nullptr);
    for (const int threads : {2, 3, 7}) {
      set_num_threads(threads);
      const auto c = run_gemm<S, C>(q.M, q.N, q.K, a.view(), b.view(), nullptr);
      ASSERT_TRUE(same_bits(c.data(), expected.data(), static_cast<int64_t>(c.size())))
          << threads << " threads, M " << q.M << " N " << q.N << " K " << q.K;
    }
  }
}

// What cached decoding relies on: a row alone, some rows, some columns, and another layout of the
// same values give the same bits.
TYPED_TEST(Gemm, SameBitsForAnyPartOfTheProduct) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  for (const int64_t K : {int64_t{37}, int64_t{384}, int64_t{1536}, kLongK + 300}) {
    if (K > 384 && plain_loops<S>()) {
      continue;
    }
    const int64_t M = 100, N = 66, ldc = N + kPadding;
    const Matrix<S> a(M, K, Layout::kRows, 1);
    const std::vector<BiasOf<S>> bias = random_vector<BiasOf<S>>(N, 3);
    for (const Layout layout : {Layout::kRows, Layout::kColumns, Layout::kBothStrided}) {
      const Matrix<S> b(K, N, layout, 2);
      const auto all = run_gemm<S, C>(M, N, K, a.view(), b.view(), bias.data());
      const auto expect_part = [&](int64_t i, int64_t rows, int64_t j, int64_t columns) {
        const MatrixView<S> va = {a.view().data + i * a.view().row_stride, a.view().row_stride, 1};
        const MatrixView<S> vb = {b.view().data + j * b.view().column_stride, b.view().row_stride,
                                  b.view().column_stride};
        const auto c = run_gemm<S, C>(rows, columns, K, va, vb, bias.data() + j);
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(same_bits(&c[static_cast<size_t>(r * (columns + kPadding))],
                                &all[static_cast<size_t>((i + r) * ldc + j)], columns))
              << "K " << K << " rows " << i << " + " << rows << " columns " << j << " + "
              << columns;
        }
      };
      for (const int64_t i : {0, 1, 5, 50, 95, 96, 99}) {
        ASSERT_NO_FATAL_FAILURE(expect_part(i, 1, 0, N));
      }
      ASSERT_NO_FATAL_FAILURE(expect_part(3, 24, 0, N));
      ASSERT_NO_FATAL_FAILURE(expect_part(3, 25, 0, N));
      ASSERT_NO_FATAL_FAILURE(expect_part(2, 97, 0, N));
      ASSERT_NO_FATAL_FAILURE(expect_part(0, M, 5, 1));
      ASSERT_NO_FATAL_FAILURE(expect_part(0, M, 1, 64));
      ASSERT_NO_FATAL_FAILURE(expect_part(7, 2, 13, 33));
    }
    // The same values of A in columns.
    std::vector<S> columns(static_cast<size_t>(M * K));
    for (int64_t i = 0; i < M; ++i) {
      for (int64_t k = 0; k < K; ++k) {
        columns[static_cast<size_t>(k * M + i)] = at(a.view(), i, k);
      }
    }
    const Matrix<S> b(K, N, Layout::kRows, 2);
    const auto by_rows = run_gemm<S, C>(M, N, K, a.view(), b.view(), bias.data());
    const auto by_columns = run_gemm<S, C>(M, N, K, {columns.data(), 1, M}, b.view(), bias.data());
    ASSERT_TRUE(same_bits(by_rows.data(), by_columns.data(), static_cast<int64_t>(by_rows.size())))
        << "K " << K;
  }
}

// The definition in gemm.h, spelled out: fused multiply-adds over k, a long K in stretches.
TEST(GemmOrder, OneChainOfFusedMultiplyAdds) {
  if (active_tier() == Tier::kRef) {
    GTEST_SKIP() << "the ref tier adds up in double";
  }
  for (const int64_t K : {int64_t{1}, int64_t{700}, kLongK, kLongK + 1, kLongK + 700}) {
    const int64_t M = 26, N = 66;  // A last panel of two columns takes a way of its own.
    for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
      const Matrix<float> a(M, K, layout, 1), b(K, N, Layout::kRows, 2);
      const std::vector<float> bias = random_vector<float>(N, 3);
      const auto c = run_gemm<float>(M, N, K, a.view(), b.view(), bias.data());
      const int64_t stretch = K > kLongK ? kStretchK : K;
      for (const int64_t i : {0, 7, 25}) {
        for (const int64_t j : {0, 17, 63, 64, 65}) {
          float total = 0;
          for (int64_t begin = 0; begin < K; begin += stretch) {
            float sum = begin == 0 ? bias[static_cast<size_t>(j)] : 0.0f;
            for (int64_t k = begin; k < std::min(K, begin + stretch); ++k) {
              sum = std::fma(at(a.view(), i, k), at(b.view(), k, j), sum);
            }
            total = begin == 0 ? sum : total + sum;
          }
          ASSERT_EQ(c[static_cast<size_t>(i * (N + kPadding) + j)], total)
              << "K " << K << " at " << i << ", " << j;
        }
      }
    }
  }
}

// What ran, not what was asked for: only the CPU's bfloat16 instructions take subnormal numbers for
// zero.
TEST(GemmOrder, TheTiersInstructionsMultiplyBFloat16) {
  const std::vector<bfloat16> tiny(2, bfloat16(0x1p-130f)), large(2, bfloat16(0x1p127f));
  for (const int64_t M : {1, 30}) {
    std::vector<float> c(static_cast<size_t>(M), kMark<float>);
    gemm<bfloat16>(M, 1, 2, {tiny.data(), 0, 1}, {large.data(), 1, 1}, c.data(), 1);
    EXPECT_EQ(c, std::vector<float>(static_cast<size_t>(M), has_fast_bfloat16() ? 0 : 0x1p-2f));
  }
#if defined(__x86_64__)
  if (has_fast_bfloat16()) {
    const bool amx = active_tier() == Tier::kAmx;
    EXPECT_EQ(&pair_tile_kernels(),
              amx ? &pair_tile_kernels_amx() : &pair_tile_kernels_avx512bf16());
  }
#endif
}

TYPED_TEST(Gemm, SerialGivesTheSameBits) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  set_num_threads(3);
  for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
    for (const int64_t M : {1, 64, 97, 130}) {
      const int64_t N = 66, K = 290;
      const Matrix<S> a(M, K, layout, 1), b(K, N, Layout::kColumns, 2);
      const auto expected = run_gemm<S, C>(M, N, K, a.view(), b.view(), nullptr);
      // In several chunks at once: each thread has its own working memory.
      std::vector<std::vector<C>> results(6, std::vector<C>(expected.size(), kMark<C>));
      parallel_for(6, [&](int64_t i) {
        gemm_serial<S, C>(M, N, K, a.view(), b.view(), results[static_cast<size_t>(i)].data(),
                          N + kPadding);
      });
      for (const auto& c : results) {
        ASSERT_TRUE(same_bits(c.data(), expected.data(), static_cast<int64_t>(c.size())))
            << "M " << M;
      }
    }
  }
}

TYPED_TEST(Gemm, BatchedGivesTheSameBitsAsOneByOne) {
  using S = typename TypeParam::S;
  using C = typename TypeParam::C;
  struct Case {
    int64_t batch, M, N, K;
    bool a_varies, b_varies;
    Layout a, b;
  };
  const Case cases[] = {
      {1, 5, 17, 9, true, true, Layout::kRows, Layout::kColumns},
      {3, 64, 64, 32, true, true, Layout::kRows, Layout::kColumns},
      {40, 10, 12, 8, true, true, Layout::kColumns, Layout::kRows},
      {40, 64, 65, 33, true, true, Layout::kRows, Layout::kRows},
      {3, 100, 70, 80, true, true, Layout::kRows, Layout::kColumns},
      {4, 7, 30, 21, false, true, Layout::kRows, Layout::kRows},
      {4, 7, 30, 21, true, false, Layout::kRows, Layout::kColumns},  // One tall product.
      {4, 7, 30, 21, true, false, Layout::kColumns, Layout::kColumns},
      {4, 7, 30, 21, false, false, Layout::kBothStrided, Layout::kRows},
  };
  for (const Case& q : cases) {
    // Matrix i is the rows [i * M, ...) of a tall one, or of a wide one in columns.
    const bool tall = q.a != Layout::kColumns;
    const Matrix<S> a(tall ? q.batch * q.M : q.M, tall ? q.K : q.batch * q.K, q.a, 1);
    const Matrix<S> b(q.batch * q.K, q.N, q.b, 2);
    const auto va = a.view(), vb = b.view();
    const BatchStrides strides = {!q.a_varies ? 0
                                  : tall      ? q.M * va.row_stride
                                              : q.K * va.column_stride,
                                  !q.b_varies ? 0 : q.K * vb.row_stride, q.M * (q.N + kPadding)};
    const std::vector<BiasOf<S>> bias = random_vector<BiasOf<S>>(q.N, 3);
    std::vector<C> expected;
    for (int64_t i = 0; i < q.batch; ++i) {
      const MatrixView<S> ai = {va.data + i * strides.a, va.row_stride, va.column_stride};
      const MatrixView<S> bi = {vb.data + i * strides.b, vb.row_stride, vb.column_stride};
      const auto c = run_gemm<S, C>(q.M, q.N, q.K, ai, bi, bias.data());
      ASSERT_NO_FATAL_FAILURE(expect_product(q.M, q.N, q.K, ai, bi, bias.data(), c, "batch", 200));
      expected.insert(expected.end(), c.begin(), c.end());
    }
    for (const int threads : {1, 2, 7}) {
      set_num_threads(threads);
      std::vector<C> c(expected.size(), kMark<C>);
      gemm_batched<S, C>(q.batch, strides, q.M, q.N, q.K, va, vb, c.data(), q.N + kPadding,
                         bias.data());
      ASSERT_TRUE(same_bits(c.data(), expected.data(), static_cast<int64_t>(c.size())))
          << "batch " << q.batch << " M " << q.M << " N " << q.N << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace chargrad::kernels
