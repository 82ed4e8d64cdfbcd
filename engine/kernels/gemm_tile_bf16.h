// The innermost parts of the bfloat16 products (of layers and of attention), for the tiers whose
// CPU multiplies bfloat16. Internal to engine/kernels.
//
// Such instructions take pairs: two neighbours in k, 32 bits, the lower k first. All strides here
// count bfloat16 elements, so that a pair is two of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/kernels/gemm.h"
#include "engine/kernels/gemm_tile.h"

namespace chargrad::kernels {

// Columns of one panel of B, and what a narrower last panel is filled up to a multiple of.
inline constexpr int64_t kPairPanelColumns = 64;
inline constexpr int64_t kPairLanes = 16;

// Memory that is read soon, asked for while products are computed: [next, end), then [then, last).
struct Ahead {
  const std::byte* next;
  const std::byte* end;
  const std::byte* then;
  const std::byte* last;
};

// A block of C, at most kPairPanelColumns wide: sums of float32, rounded once if C is bfloat16.
template <class C>
struct PairPanelArgs {
  int64_t rows;
  int64_t columns;
  int64_t pairs;  // ceil(k / 2); where k is odd, the second half of the last pair is 0 in A and B.
  // Pair p of row i is at a + i * a_row_stride + p * a_pair_stride. The pair stride is 2 where A's
  // rows are contiguous; a packed panel (below) serves as A^T with a row stride of 2.
  const bfloat16* a;
  int64_t a_row_stride;
  int64_t a_pair_stride;
  // Pair p of column j is at b + p * ldb + 2 * j, readable up to the next multiple of kPairLanes
  // columns.
  const bfloat16* b;
  int64_t ldb;
  C* c;
  int64_t ldc;
  const float* bias;       // Null or `columns` values; read by kBegin only.
  SumMode mode;            // bfloat16: kBegin only.
  Ahead* ahead = nullptr;  // What was asked for is taken off.
  // k is odd, and the last pair of A's rows is half a one: what follows is not read, unless the
  // tile reads_rows.
  bool odd_k = false;
};

// A packed matrix of `depth` rows of k, rounded up to whole pairs: panel p holds columns
// [64 p, 64 (p + 1)) of it, at data + 64 p * (depth rounded up), pair by pair. The last panel may
// have fewer columns, a multiple of kPairLanes with zeros at the end.
struct PairPanels {
  bfloat16* data;
  int64_t depth;  // k
  int64_t columns;
};

// Elements of one pair of panel p over all its columns, the filling included.
constexpr int64_t panel_ld(int64_t columns, int64_t p) {
  const int64_t left = columns - p * kPairPanelColumns;
  return 2 * (left >= kPairPanelColumns ? kPairPanelColumns
                                        : (left + kPairLanes - 1) / kPairLanes * kPairLanes);
}

// Elements of a packed matrix.
constexpr int64_t panels_size(int64_t depth, int64_t columns) {
  return (columns + kPairLanes - 1) / kPairLanes * kPairLanes * ((depth + 1) / 2 * 2);
}

// The products of one tier. What an output is does not depend on the sizes of the block, on its
// place in it, on strides, nor on C's type before rounding; with kContinue it does not either if k
// is cut at multiples of kPairStep pairs.
inline constexpr int64_t kPairStep = 16;
struct PairTileKernels {
  void (*multiply_panel)(const PairPanelArgs<float>& args);
  void (*multiply_panel_rounded)(const PairPanelArgs<bfloat16>& args);
  // Whether rows of A are what the tile itself reads: another A is turned into rows at each call.
  bool reads_rows;
};

// The version for the active tier. Requires: has_fast_bfloat16() (cpu.h).
const PairTileKernels& pair_tile_kernels();
const PairTileKernels& pair_tile_kernels_avx512bf16();
const PairTileKernels& pair_tile_kernels_amx();

// Copies rows [k0, k1) of panels [p0, p1), on every tier but ref; k0 is even, and so is k1 or it is
// the depth. `m` is the whole matrix, (depth, columns), of any strides. Fast where one of them is
// 1.
void pack_pairs(const MatrixView<bfloat16>& m, const PairPanels& to, int64_t k0, int64_t k1,
                int64_t p0, int64_t p1);

// A matrix (rows, k) of any strides as rows of contiguous pairs, row i at to + i * ld, an odd k
// filled up with a zero; on every tier but ref. It is what A must be where its own rows are not
// contiguous or k is odd.
void pack_pair_rows(const MatrixView<bfloat16>& m, int64_t rows, int64_t k, bfloat16* to,
                    int64_t ld);

// Pair p of row i, at from + i * row_stride + p * pair_stride, to to + i * ld + 2 * p, on every
// tier but ref. Fast where one of the strides is 2.
void transpose_pairs(const bfloat16* from, int64_t row_stride, int64_t pair_stride, int64_t rows,
                     int64_t pairs, bfloat16* to, int64_t ld);

}  // namespace chargrad::kernels
