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
#include "engine/kernels/gemm_ref.h"
#include "engine/threads.h"

namespace chargrad::kernels {
namespace {

template <class S>
constexpr const char* type_name = std::is_same_v<S, float> ? "float" : "double";

// How a matrix lies in memory.
enum class Layout { kRows, kColumns, kWideRows, kWideColumns, kBothStrided };
constexpr Layout kLayouts[] = {Layout::kRows, Layout::kColumns, Layout::kWideRows,
                               Layout::kWideColumns, Layout::kBothStrided};

// A random matrix of a layout, at an unaligned place; whatever lies between its elements is NaN,
// so that a kernel that reads and uses it is found out.
template <class S>
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, Layout layout, uint32_t seed)
      : row_stride_(stride(layout, columns, /*of_rows=*/true)),
        column_stride_(stride(layout, rows, /*of_rows=*/false)),
        data_(static_cast<size_t>(kOffset + rows * row_stride_ + columns * column_stride_ + 1),
              std::numeric_limits<S>::quiet_NaN()) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        data_[static_cast<size_t>(kOffset + i * row_stride_ + j * column_stride_)] =
            static_cast<S>(normal(random));
      }
    }
  }

  MatrixView<S> view() const { return {data_.data() + kOffset, row_stride_, column_stride_}; }

 private:
  static constexpr int64_t kOffset = 1;

  static int64_t stride(Layout layout, int64_t other_size, bool of_rows) {
    const bool by_rows = layout == Layout::kRows || layout == Layout::kWideRows;
    if (layout == Layout::kBothStrided) {
      return of_rows ? 3 * other_size + 2 : 3;
    }
    if (by_rows != of_rows) {
      return 1;
    }
    const bool wide = layout == Layout::kWideRows || layout == Layout::kWideColumns;
    return std::max<int64_t>(1, other_size) + (wide ? 5 : 0);
  }

  int64_t row_stride_;
  int64_t column_stride_;
  std::vector<S> data_;
};

template <class S>
S at(const MatrixView<S>& m, int64_t i, int64_t j) {
  return m.data[i * m.row_stride + j * m.column_stride];
}

template <class S>
std::vector<S> random_vector(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<S> x(static_cast<size_t>(n));
  for (S& v : x) {
    v = static_cast<S>(normal(random));
  }
  return x;
}

constexpr int64_t kPadding = 3;  // ldc - N

// C of a product, its padding filled with a value that must survive.
template <class S>
std::vector<S> run_gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a,
                        const MatrixView<S>& b, const S* bias) {
  std::vector<S> c(static_cast<size_t>(M * (N + kPadding)), S(1234));
  gemm(M, N, K, a, b, c.data(), N + kPadding, bias);
  return c;
}

// Compares up to `checks` outputs with long double sums. Each of the K multiply-adds and the
// addition of the bias rounds once, relative u, and what is rounded is at most the sum of all
// magnitudes: |error| <= (K + 1) u sum |a b|, to first order in u; a hundredth more for the rest.
template <class S>
void expect_product(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b,
                    const S* bias, const std::vector<S>& c, const std::string& what,
                    int64_t checks = int64_t{1} << 40) {
  const long double u = std::numeric_limits<S>::epsilon() / 2;
  const int64_t step = std::max<int64_t>(1, M * N / checks);
  for (int64_t ij = 0; ij < M * N; ij += step) {
    const int64_t i = ij / N, j = ij % N;
    long double sum = bias == nullptr ? 0 : bias[j], magnitude = std::abs(sum);
    for (int64_t k = 0; k < K; ++k) {
      const long double term = static_cast<long double>(at(a, i, k)) * at(b, k, j);
      sum += term;
      magnitude += std::abs(term);
    }
    const long double tolerance = 1.01L * static_cast<long double>(K + 1) * u * magnitude;
    const S got = c[static_cast<size_t>(i * (N + kPadding) + j)];
    // Negated, so that a NaN fails.
    ASSERT_FALSE(!(std::abs(got - sum) <= tolerance))
        << what << ", tier " << tier_name(active_tier()) << ", " << type_name<S> << ": C(" << i
        << ", " << j << ") is " << got << ", expected " << sum << " +- " << tolerance;
  }
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = N; j < N + kPadding; ++j) {
      ASSERT_EQ(c[static_cast<size_t>(i * (N + kPadding) + j)], S(1234))
          << what << ": wrote past row " << i;
    }
  }
}

template <class S>
class Gemm : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(0); }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Scalars);

// All pairs of sizes around the register tile and the vectors; K, layouts and the bias vary along.
TYPED_TEST(Gemm, OddSizesAndAllLayouts) {
  using S = TypeParam;
  const int64_t depths[] = {1, 2, 3, 15, 16, 17, 31, 33, 65, 127, 129};
  uint32_t round = 0;
  for (const int64_t M : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 24, 25, 30}) {
    for (const int64_t N : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 49, 63, 64, 65, 130}) {
      const Layout la = kLayouts[round % 5], lb = kLayouts[round / 5 % 5];
      const int64_t K = depths[round % std::size(depths)];
      const Matrix<S> a(M, K, la, round), b(K, N, lb, round + 1000);
      const std::vector<S> bias = random_vector<S>(N, round + 2000);
      const S* const use_bias = round % 3 == 0 ? nullptr : bias.data();
      const std::string what = "M " + std::to_string(M) + " N " + std::to_string(N) + " K " +
                               std::to_string(K) + " layouts " +
                               std::to_string(static_cast<int>(la)) + " " +
                               std::to_string(static_cast<int>(lb));
      const auto c = run_gemm<S>(M, N, K, a.view(), b.view(), use_bias);
      ASSERT_NO_FATAL_FAILURE(expect_product<S>(M, N, K, a.view(), b.view(), use_bias, c, what));
      ++round;
    }
  }
}

// Every pair of layouts on both sides of what one chunk, one pass and one panel hold.
TYPED_TEST(Gemm, SeveralChunksInAllLayouts) {
  using S = TypeParam;
  uint32_t round = 0;
  for (const Layout la : kLayouts) {
    for (const Layout lb : kLayouts) {
      for (const int64_t K : {70, 260, 391}) {
        const int64_t M = 97 + 5 * (round % 4), N = 66 + round % 3;
        const Matrix<S> a(M, K, la, round), b(K, N, lb, round + 1000);
        const std::vector<S> bias = random_vector<S>(N, round + 2000);
        const auto c = run_gemm<S>(M, N, K, a.view(), b.view(), bias.data());
        ASSERT_NO_FATAL_FAILURE(expect_product<S>(M, N, K, a.view(), b.view(), bias.data(), c,
                                                  "round " + std::to_string(round), 800));
        ++round;
      }
    }
  }
}

TYPED_TEST(Gemm, SizesBeyondThePackedBuffers) {
  using S = TypeParam;
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
    const Matrix<S> a(q.M, q.K, q.a, 1), b(q.K, q.N, q.b, 2);
    const std::vector<S> bias = random_vector<S>(q.N, 3);
    const auto c = run_gemm<S>(q.M, q.N, q.K, a.view(), b.view(), bias.data());
    ASSERT_NO_FATAL_FAILURE(expect_product<S>(
        q.M, q.N, q.K, a.view(), b.view(), bias.data(), c,
        "M " + std::to_string(q.M) + " N " + std::to_string(q.N) + " K " + std::to_string(q.K),
        1000));
  }
}

TYPED_TEST(Gemm, ZeroAndNegativeStrides) {
  using S = TypeParam;
  const int64_t M = 31, N = 40, K = 21;
  const std::vector<S> x = random_vector<S>(M * K, 1), y = random_vector<S>(K * N, 2);
  const MatrixView<S> plain_a = {x.data(), K, 1}, plain_b = {y.data(), N, 1};
  const MatrixView<S> same_rows_a = {x.data(), 0, 1}, same_columns_a = {x.data(), 1, 0};
  const MatrixView<S> same_rows_b = {y.data(), 0, 1}, same_columns_b = {y.data(), 1, 0};
  const MatrixView<S> reversed_a = {x.data() + M * K - 1, -K, -1};
  const MatrixView<S> reversed_b = {y.data() + K * N - 1, -N, -1};
  for (const auto& a : {plain_a, same_rows_a, same_columns_a, reversed_a}) {
    for (const auto& b : {plain_b, same_rows_b, same_columns_b, reversed_b}) {
      const auto c = run_gemm<S>(M, N, K, a, b, nullptr);
      ASSERT_NO_FATAL_FAILURE(expect_product<S>(M, N, K, a, b, nullptr, c, "strides"));
    }
  }
}

TYPED_TEST(Gemm, EmptySizes) {
  using S = TypeParam;
  const std::vector<S> bias = {1, 2, 3};
  std::vector<S> c(8, S(9));
  gemm<S>(2, 3, 0, {nullptr, 0, 1}, {nullptr, 3, 1}, c.data(), 4, bias.data());
  EXPECT_EQ(c, (std::vector<S>{1, 2, 3, 9, 1, 2, 3, 9}));
  gemm<S>(2, 3, 0, {nullptr, 0, 1}, {nullptr, 3, 1}, c.data(), 4);
  EXPECT_EQ(c, (std::vector<S>{0, 0, 0, 9, 0, 0, 0, 9}));

  std::vector<S> untouched(8, S(9));
  gemm<S>(0, 3, 2, {nullptr, 2, 1}, {bias.data(), 0, 1}, untouched.data(), 4, bias.data());
  gemm<S>(2, 0, 3, {bias.data(), 0, 1}, {nullptr, 0, 1}, untouched.data(), 4, bias.data());
  gemm_batched<S>(0, {0, 0, 0}, 2, 3, 2, {nullptr, 2, 1}, {nullptr, 3, 1}, untouched.data(), 4);
  gemm_batched<S>(3, {0, 0, 0}, 0, 3, 2, {nullptr, 2, 1}, {nullptr, 3, 1}, untouched.data(), 4);
  EXPECT_EQ(untouched, std::vector<S>(8, S(9)));
}

// A NaN or an infinity reaches exactly its row or column.
TYPED_TEST(Gemm, NonFiniteValuesStayInTheirRowAndColumn) {
  using S = TypeParam;
  const int64_t M = 30, N = 40, K = 20;
  std::vector<S> a(static_cast<size_t>(M * K), S(1)), b(static_cast<size_t>(K * N), S(1));
  a[7 * K + 3] = std::numeric_limits<S>::quiet_NaN();
  b[5 * N + 33] = std::numeric_limits<S>::infinity();
  const auto c = run_gemm<S>(M, N, K, {a.data(), K, 1}, {b.data(), N, 1}, nullptr);
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < N; ++j) {
      const S got = c[static_cast<size_t>(i * (N + kPadding) + j)];
      ASSERT_EQ(std::isnan(got), i == 7) << i << ", " << j;
      ASSERT_TRUE(i == 7 || got == (j == 33 ? std::numeric_limits<S>::infinity() : S(K)));
    }
  }
}

template <class S>
bool same_bits(const S* x, const S* y, int64_t n) {
  return std::memcmp(x, y, static_cast<size_t>(n) * sizeof(S)) == 0;
}

TYPED_TEST(Gemm, SameBitsForAnyNumberOfThreads) {
  using S = TypeParam;
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
    const Matrix<S> a(q.M, q.K, q.a, 1), b(q.K, q.N, q.b, 2);
    set_num_threads(1);
    const auto expected = run_gemm<S>(q.M, q.N, q.K, a.view(), b.view(), nullptr);
    for (const int threads : {2, 3, 7}) {
      set_num_threads(threads);
      const auto c = run_gemm<S>(q.M, q.N, q.K, a.view(), b.view(), nullptr);
      ASSERT_TRUE(same_bits(c.data(), expected.data(), static_cast<int64_t>(c.size())))
          << threads << " threads, M " << q.M << " N " << q.N << " K " << q.K;
    }
  }
}

// What cached decoding relies on: a row alone, some rows, some columns, and another layout of the
// same values give the same bits.
TYPED_TEST(Gemm, SameBitsForAnyPartOfTheProduct) {
  using S = TypeParam;
  for (const int64_t K : {int64_t{37}, int64_t{384}, int64_t{1536}, kLongK + 300}) {
    const int64_t M = 100, N = 66, ldc = N + kPadding;
    const Matrix<S> a(M, K, Layout::kRows, 1);
    const std::vector<S> bias = random_vector<S>(N, 3);
    for (const Layout layout : {Layout::kRows, Layout::kColumns, Layout::kBothStrided}) {
      const Matrix<S> b(K, N, layout, 2);
      const auto all = run_gemm<S>(M, N, K, a.view(), b.view(), bias.data());
      const auto expect_part = [&](int64_t i, int64_t rows, int64_t j, int64_t columns) {
        const MatrixView<S> va = {a.view().data + i * a.view().row_stride, a.view().row_stride, 1};
        const MatrixView<S> vb = {b.view().data + j * b.view().column_stride, b.view().row_stride,
                                  b.view().column_stride};
        const auto c = run_gemm<S>(rows, columns, K, va, vb, bias.data() + j);
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
    const auto by_rows = run_gemm<S>(M, N, K, a.view(), b.view(), bias.data());
    const auto by_columns = run_gemm<S>(M, N, K, {columns.data(), 1, M}, b.view(), bias.data());
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

TYPED_TEST(Gemm, SerialGivesTheSameBits) {
  using S = TypeParam;
  set_num_threads(3);
  for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
    for (const int64_t M : {1, 64, 97, 130}) {
      const int64_t N = 66, K = 290;
      const Matrix<S> a(M, K, layout, 1), b(K, N, Layout::kColumns, 2);
      const auto expected = run_gemm<S>(M, N, K, a.view(), b.view(), nullptr);
      // In several chunks at once: each thread has its own working memory.
      std::vector<std::vector<S>> results(6, std::vector<S>(expected.size(), S(1234)));
      parallel_for(6, [&](int64_t i) {
        gemm_serial<S>(M, N, K, a.view(), b.view(), results[static_cast<size_t>(i)].data(),
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
  using S = TypeParam;
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
    const std::vector<S> bias = random_vector<S>(q.N, 3);
    std::vector<S> expected;
    for (int64_t i = 0; i < q.batch; ++i) {
      const MatrixView<S> ai = {va.data + i * strides.a, va.row_stride, va.column_stride};
      const MatrixView<S> bi = {vb.data + i * strides.b, vb.row_stride, vb.column_stride};
      const auto c = run_gemm<S>(q.M, q.N, q.K, ai, bi, bias.data());
      ASSERT_NO_FATAL_FAILURE(
          expect_product<S>(q.M, q.N, q.K, ai, bi, bias.data(), c, "batch", 200));
      expected.insert(expected.end(), c.begin(), c.end());
    }
    for (const int threads : {1, 2, 7}) {
      set_num_threads(threads);
      std::vector<S> c(expected.size(), S(1234));
      gemm_batched<S>(q.batch, strides, q.M, q.N, q.K, va, vb, c.data(), q.N + kPadding,
                      bias.data());
      ASSERT_TRUE(same_bits(c.data(), expected.data(), static_cast<int64_t>(c.size())))
          << "batch " << q.batch << " M " << q.M << " N " << q.N << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace chargrad::kernels
