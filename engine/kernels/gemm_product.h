// A product as gemm.cpp hands it down. Internal to gemm*.cpp.
#pragma once

#include <algorithm>
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

// Where a chunk of C's blocks lies. In what order they come decides on which threads have a row of
// blocks or a column of them, and so one half of A, or of B, to themselves.
struct GridPlace {
  int64_t row;
  int64_t column;
};
inline GridPlace place_in_grid(int64_t chunk, int64_t rows, int64_t columns, bool by_columns) {
  return by_columns ? GridPlace{chunk % rows, chunk / rows}
                    : GridPlace{chunk / columns, chunk % columns};
}

// Runs the chunks of two packings side by side: where both are cut along k, a thread packs the same
// rows of k of both.
template <class A, class B>
void pack_both(Run run, const A& a, const B& b) {
  const int64_t count = std::max(a.chunks(), b.chunks());
  const auto run_share = [count](const auto& packing, int64_t i) {
    const int64_t chunks = packing.chunks();
    for (int64_t chunk = chunks * i / count; chunk < chunks * (i + 1) / count; ++chunk) {
      packing.run(chunk);
    }
  };
  for_chunks(run, count, [&](int64_t i) {
    run_share(a, i);
    run_share(b, i);
  });
}

// C (M, N) = A (M, K) . B (K, N) + bias, as gemm.h has it.
template <class S, class C = S>
struct Product {
  int64_t M;
  int64_t N;
  int64_t K;
  MatrixView<S> a;
  MatrixView<S> b;
  C* c;
  int64_t ldc;
  const BiasOf<S>* bias;
  // B as pack_b leaves it, or null. `b` is not read then.
  const void* packed_b = nullptr;

  // The product for C's rows [i, i + rows) and columns [j, j + columns); B as a view.
  Product part(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    return {rows,          columns,         K,   from(a, i, 0),
            from(b, 0, j), c + i * ldc + j, ldc, bias == nullptr ? nullptr : bias + j};
  }

  static MatrixView<S> from(const MatrixView<S>& m, int64_t i, int64_t j) {
    return {m.data + i * m.row_stride + j * m.column_stride, m.row_stride, m.column_stride};
  }
};

// The product on the active tier.
template <class S, class C>
void multiply(const Product<S, C>& p, Run run);

// By register tiles. Requires: no size is 0; the active tier is not ref.
void multiply_fast(const Product<float>& p, Run run);
void multiply_fast(const Product<bfloat16, float>& p, Run run);
void multiply_fast(const Product<bfloat16>& p, Run run);

// By the CPU's bfloat16 instructions. Requires: has_fast_bfloat16() too, and a K of at most kLongK
// where C is bfloat16.
void multiply_pairs(const Product<bfloat16, float>& p, Run run);
void multiply_pairs(const Product<bfloat16>& p, Run run);
void pack_pairs_of_b(const MatrixView<bfloat16>& b, int64_t K, int64_t N, void* to);

// A matrix B (K, N) in the form that multiply_fast reads; bfloat16 takes as much as float where the
// CPU has no instructions for it. Requires: the active tier is not ref.
int64_t packed_b_bytes(const MatrixView<float>& b, int64_t K, int64_t N);
int64_t packed_b_bytes(const MatrixView<bfloat16>& b, int64_t K, int64_t N);
void pack_b(const MatrixView<float>& b, int64_t K, int64_t N, void* to);
void pack_b(const MatrixView<bfloat16>& b, int64_t K, int64_t N, void* to);

}  // namespace chargrad::kernels
