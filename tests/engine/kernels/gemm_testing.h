// What the tests of products share: matrices of all layouts, and a comparison with exact sums.
#pragma once

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
#include "engine/kernels/gemm.h"
#include "engine/threads.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {

// What a product reads and what it writes.
template <class S_, class C_>
struct Types {
  using S = S_;
  using C = C_;
};
using ProductTypes = testing::Types<Types<float, float>, Types<double, double>,
                                    Types<bfloat16, float>, Types<bfloat16, bfloat16>>;

// How a matrix lies in memory.
enum class Layout { kRows, kColumns, kWideRows, kWideColumns, kBothStrided };
inline constexpr Layout kLayouts[] = {Layout::kRows, Layout::kColumns, Layout::kWideRows,
                                      Layout::kWideColumns, Layout::kBothStrided};

// Whether products of S are plain loops here, which know no blocks and no stretches of K and take
// their time.
template <class S>
bool plain_loops() {
  return std::is_same_v<S, double> || active_tier() == Tier::kRef;
}

// In [-2, 2).
template <class S>
S random_value(std::mt19937& random) {
  return static_cast<S>(static_cast<float>(random()) * 0x1p-30f - 2);
}

// A random matrix of a layout, at an unaligned place; whatever lies between its elements is NaN,
// so that a kernel that reads and uses it is found out.
template <class S>
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, Layout layout, uint32_t seed)
      : row_stride_(stride(layout, columns, /*of_rows=*/true)),
        column_stride_(stride(layout, rows, /*of_rows=*/false)),
        data_(static_cast<size_t>(kOffset + rows * row_stride_ + columns * column_stride_ + 1),
              S(std::numeric_limits<float>::quiet_NaN())) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        data_[static_cast<size_t>(kOffset + i * row_stride_ + j * column_stride_)] =
            random_value<S>(random);
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
  std::vector<S> x(static_cast<size_t>(n));
  for (S& v : x) {
    v = random_value<S>(random);
  }
  return x;
}

inline constexpr int64_t kPadding = 3;  // ldc - N

template <class C>
const C kMark = C(1234);  // Of what must not be written.

// C of a product, its padding filled with a value that must survive.
template <class S, class C = S>
std::vector<C> run_gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a,
                        const MatrixView<S>& b, const BiasOf<S>* bias) {
  std::vector<C> c(static_cast<size_t>(M * (N + kPadding)), kMark<C>);
  gemm(M, N, K, a, b, c.data(), N + kPadding, bias);
  return c;
}

// Compares up to `checks` outputs with long double sums. Each of the K multiplications and K
// additions and the addition of the bias rounds once or not at all, relative u, and what is rounded
// is at most the sum of all magnitudes: |error| <= (2 K + 1) u sum |a b|, to first order in u; a
// hundredth more for the rest. Fused multiply-adds halve it: (K + 1). Of n roundings of either sign
// no sum comes near n: 8 sqrt(n) is exceeded once in 10^13 outputs (Higham and Mary, "A New
// Approach to Probabilistic Rounding Error Analysis", 2019). A bfloat16 is rounded to once more,
// with its own u. Values are far from subnormal. The tolerance must be so narrow that the largest
// output would be found 1 % off, larger or smaller.
template <class S, class C>
void expect_product(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b,
                    const BiasOf<S>* bias, const std::vector<C>& c, const std::string& what,
                    int64_t checks = int64_t{1} << 40) {
  constexpr bool kPairs = std::is_same_v<S, bfloat16>;
  const long double u = std::numeric_limits<BiasOf<S>>::epsilon() / 2;
  const long double last_u = std::is_same_v<C, bfloat16> ? 0x1p-8L : 0;
  const int64_t step = std::max<int64_t>(1, M * N / checks);
  long double largest = 0, its_tolerance = 0;
  C its_result = 0;
  for (int64_t ij = 0; ij < M * N; ij += step) {
    const int64_t i = ij / N, j = ij % N;
    long double sum = bias == nullptr ? 0 : bias[j], magnitude = std::abs(sum);
    for (int64_t k = 0; k < K; ++k) {
      const long double term = static_cast<long double>(at(a, i, k)) * at(b, k, j);
      sum += term;
      magnitude += std::abs(term);
    }
    const auto n = static_cast<long double>(kPairs ? 2 * K + 1 : K + 1);
    const long double roundings = std::min(n, 8 * std::sqrt(n));
    const long double tolerance = 1.01L * (roundings * u * magnitude + last_u * std::abs(sum));
    const auto got = static_cast<long double>(c[static_cast<size_t>(i * (N + kPadding) + j)]);
    // Negated, so that a NaN fails.
    ASSERT_FALSE(!(std::abs(got - sum) <= tolerance))
        << what << ", tier " << tier_name(active_tier()) << ": C(" << i << ", " << j << ") is "
        << got << ", expected " << sum << " +- " << tolerance;
    if (std::abs(sum) > std::abs(largest)) {
      largest = sum;
      its_result = c[static_cast<size_t>(i * (N + kPadding) + j)];
      its_tolerance = tolerance;
    }
  }
  ASSERT_TRUE(largest == 0 || catches_one_percent(its_result, static_cast<double>(largest),
                                                  static_cast<double>(its_tolerance), 0))
      << what << ", tier " << tier_name(active_tier()) << ": 1 % of " << largest
      << " is within the tolerance " << its_tolerance;
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = N; j < N + kPadding; ++j) {
      ASSERT_EQ(c[static_cast<size_t>(i * (N + kPadding) + j)], kMark<C>)
          << what << ": wrote past row " << i;
    }
  }
}

template <class S>
bool same_bits(const S* x, const S* y, int64_t n) {
  return std::memcmp(x, y, static_cast<size_t>(n) * sizeof(S)) == 0;
}

}  // namespace chargrad::kernels
