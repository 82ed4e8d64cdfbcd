// A product as gemm.cpp hands it down. Internal to gemm*.cpp.
#pragma once

#include <cstdint>

#include "engine/kernels/gemm.h"
#include "engine/threads.h"

namespace chargrad::kernels {

// Chunks that are enough to keep the threads busy to the end.
inline constexpr int64_t kEnoughChunks = 32;

constexpr int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

constexpr int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

enum class Run { kParallel, kSerial };

template <class F>
void for_chunks(Run run, int64_t chunks, const F& f) {
  if (run == Run::kParallel) {
    parallel_for(chunks, f);
    return;
  }
  for (int64_t i = 0; i < chunks; ++i) {
    f(i);
  }
}

// C (M, N) = A (M, K) . B (K, N) + bias, as gemm.h has it.
template <class S>
struct Product {
  int64_t M;
  int64_t N;
  int64_t K;
  MatrixView<S> a;
  MatrixView<S> b;
  S* c;
  int64_t ldc;
  const S* bias;

  // The product for C's rows [i, i + rows) and columns [j, j + columns).
  Product part(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    return {rows,          columns,         K,   from(a, i, 0),
            from(b, 0, j), c + i * ldc + j, ldc, bias == nullptr ? nullptr : bias + j};
  }

  static MatrixView<S> from(const MatrixView<S>& m, int64_t i, int64_t j) {
    return {m.data + i * m.row_stride + j * m.column_stride, m.row_stride, m.column_stride};
  }
};

// The product by register tiles. Requires: no size is 0; the active tier is not ref.
void multiply_fast(const Product<float>& p, Run run);

}  // namespace chargrad::kernels
