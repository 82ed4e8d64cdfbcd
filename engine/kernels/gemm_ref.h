// The plain matrix product: the truth that the fast one is compared with, and what float64 and
// the ref tier use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/kernels/gemm.h"

namespace chargrad::kernels::ref {

// float32 and bfloat16 add up in double. Eight columns at a time: one sum would wait for its own
// last addition.
template <class S, class C>
void gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b, C* c,
          int64_t ldc, const BiasOf<S>* bias) {
  using Sum = std::conditional_t<std::is_same_v<BiasOf<S>, float>, double, S>;
  constexpr int64_t kColumns = 8;
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t first = 0; first < N; first += kColumns) {
      const int64_t columns = std::min(kColumns, N - first);
      Sum sums[kColumns] = {};
      for (int64_t j = 0; j < columns && bias != nullptr; ++j) {
        sums[j] = Sum(bias[first + j]);
      }
      for (int64_t k = 0; k < K; ++k) {
        const auto x = Sum(a.data[i * a.row_stride + k * a.column_stride]);
        const S* const row = b.data + k * b.row_stride + first * b.column_stride;
        for (int64_t j = 0; j < columns; ++j) {
          sums[j] += x * Sum(row[j * b.column_stride]);
        }
      }
      for (int64_t j = 0; j < columns; ++j) {
        c[i * ldc + first + j] = static_cast<C>(sums[j]);
      }
    }
  }
}

}  // namespace chargrad::kernels::ref
