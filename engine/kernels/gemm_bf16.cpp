// How bfloat16 is multiplied: by the CPU's instructions for it, or widened to float32.
#include <algorithm>

#include "engine/kernels/convert.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/scratch.h"

namespace chargrad::kernels {

namespace {

// Elements that a thread converts at a time, at least.
constexpr int64_t kConvertChunk = 16384;

// Calls f(first, count) for pieces of `rows` rows that are `columns` long.
template <class F>
void for_rows(Run run, int64_t rows, int64_t columns, const F& f) {
  const int64_t size = ceil_div(kConvertChunk, columns);
  for_chunks(run, ceil_div(rows, size),
             [&](int64_t chunk) { f(chunk * size, std::min(size, rows - chunk * size)); });
}

// m (rows, columns) in float32, its longer runs of neighbours kept.
MatrixView<float> widened(const MatrixView<bfloat16>& m, int64_t rows, int64_t columns, float* to,
                          Run run) {
  if (m.row_stride == 1 && m.column_stride != 1) {
    return transposed(widened(transposed(m), columns, rows, to, run));
  }
  for_rows(run, rows, columns, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const bfloat16* const row = m.data + i * m.row_stride;
      if (m.column_stride == 1) {
        to_float(row, to + i * columns, columns);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j) {
        to[i * columns + j] = row[j * m.column_stride];
      }
    }
  });
  return {to, columns, 1};
}

void multiply_widened(const Product<bfloat16, float>& p, Run run) {
  thread_local Scratch scratch_a, scratch_b;
  const MatrixView<float> a = widened(p.a, p.M, p.K, scratch_a.floats(p.M * p.K), run);
  MatrixView<float> b = {};
  if (p.packed_b == nullptr) {
    b = widened(p.b, p.K, p.N, scratch_b.floats(p.K * p.N), run);
  }
  multiply_fast(Product<float>{p.M, p.N, p.K, a, b, p.c, p.ldc, p.bias, p.packed_b}, run);
}

}  // namespace

const PairTileKernels& pair_tile_kernels() {
#if defined(__x86_64__)
  return active_tier() == Tier::kAmx ? pair_tile_kernels_amx() : pair_tile_kernels_avx512bf16();
#else
  detail::fail_check("kernels: this processor has no bfloat16 instructions");
#endif
}

void multiply_fast(const Product<bfloat16, float>& p, Run run) {
  if (has_fast_bfloat16()) {
    multiply_pairs(p, run);
  } else {
    multiply_widened(p, run);
  }
}

void multiply_fast(const Product<bfloat16>& p, Run run) {
  if (has_fast_bfloat16() && p.K <= kLongK) {
    multiply_pairs(p, run);
    return;
  }
  // Sums that are added up in stretches cannot be kept in bfloat16.
  thread_local Scratch scratch;
  float* const sums = scratch.floats(p.M * p.N);
  multiply_fast(Product<bfloat16, float>{p.M, p.N, p.K, p.a, p.b, sums, p.N, p.bias, p.packed_b},
                run);
  for_rows(run, p.M, p.N, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      to_bfloat16(sums + i * p.N, p.c + i * p.ldc, p.N);
    }
  });
}

int64_t packed_b_bytes(const MatrixView<bfloat16>& /*b*/, int64_t K, int64_t N) {
  return has_fast_bfloat16() ? panels_size(K, N) * static_cast<int64_t>(sizeof(bfloat16))
                             : packed_b_bytes(MatrixView<float>{}, K, N);
}

void pack_b(const MatrixView<bfloat16>& b, int64_t K, int64_t N, void* to) {
  if (has_fast_bfloat16()) {
    pack_pairs_of_b(b, K, N, to);
    return;
  }
  Scratch scratch;
  pack_b(widened(b, K, N, scratch.floats(K * N), Run::kParallel), K, N, to);
}

}  // namespace chargrad::kernels
