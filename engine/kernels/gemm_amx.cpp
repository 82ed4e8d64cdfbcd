// The bfloat16 product by AMX tiles.
//
// Four tiles hold sums, 2 by 2 of 16 rows and 16 columns; two tiles of A (16 rows, 16 pairs) and
// two of B (16 pairs, 16 columns) meet in four tile products a step, so that each loaded tile is
// used twice. A panel of B is what a tile of B wants, read in place. Rows of A are read in place
// where there are 32 of them and the pairs fill whole tiles; else they are copied and filled up
// with zeros. Sums go through a block of floats, where bias, addition and rounding are done by
// vectors.
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/scratch.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

namespace chargrad::kernels {
namespace {

// Out here, as the inline functions of Scratch are not for this file's target.
float* scratch_floats(int64_t count) {
  thread_local Scratch scratch;
  return scratch.floats(count);
}

}  // namespace
}  // namespace chargrad::kernels

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace chargrad::kernels {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kBlockColumns = 2 * kPairLanes;
// Bytes from row to row of the block of sums.
constexpr int64_t kBlockStride = kBlockColumns * 4;
static_assert(kPairStep == 16);

// Every tile of this thread has 16 rows of 64 bytes while it lives.
class TileConfig {
 public:
  TileConfig() { _tile_loadconfig(&kConfig); }
  ~TileConfig() { _tile_release(); }
  TileConfig(const TileConfig&) = delete;
  TileConfig& operator=(const TileConfig&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Config) == 64);
  static constexpr Config kConfig = {
      1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
};

// The compiler does not know that tile loads read memory: what was written must be there.
void finish_writes() {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// A matrix in whole tiles: the first `full` pairs, and after them one step that is filled up with
// zeros, if there is any.
struct Tiled {
  const bfloat16* data;
  int64_t ld;
  const bfloat16* last;
  int64_t last_ld;
};

int64_t full_steps(int64_t pairs) {
  return pairs / kPairStep * kPairStep;
}

// sums (32, 32) += A (32, k) . B (k, 32), the latter from `column` on; only its first 16 columns
// if there are no more.
void multiply_block(int64_t pairs, const Tiled& a, const Tiled& b, int64_t column, bool wide,
                    float* sums) {
  finish_writes();
  float* const lower = sums + kTileRows * kBlockColumns;
  _tile_loadd(0, sums, kBlockStride);
  _tile_loadd(1, sums + kPairLanes, kBlockStride);
  _tile_loadd(2, lower, kBlockStride);
  _tile_loadd(3, lower + kPairLanes, kBlockStride);
  for (int64_t p = 0; p < pairs; p += kPairStep) {
    const bool full = p + kPairStep <= pairs;
    const bfloat16* const rows = full ? a.data + 2 * p : a.last;
    const int64_t lda = full ? a.ld : a.last_ld;
    const bfloat16* const columns = (full ? b.data + p * b.ld : b.last) + 2 * column;
    const int64_t ldb = full ? b.ld : b.last_ld;
    _tile_loadd(4, rows, lda * 2);
    _tile_loadd(5, rows + kTileRows * lda, lda * 2);
    _tile_loadd(6, columns, ldb * 2);
    _tile_loadd(7, columns + (wide ? 2 * kPairLanes : 0), ldb * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kBlockStride);
  _tile_stored(1, sums + kPairLanes, kBlockStride);
  _tile_stored(2, lower, kBlockStride);
  _tile_stored(3, lower + kPairLanes, kBlockStride);
}

__mmask16 first_lanes(int64_t count) {
  return count >= kPairLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1u << count) - 1);
}

void store(__m512 sum, __mmask16 mask, float* c) {
  _mm512_mask_storeu_ps(c, mask, sum);
}
void store(__m512 sum, __mmask16 mask, bfloat16* c) {
  _mm256_mask_storeu_epi16(c, mask, (__m256i)_mm512_cvtneps_pbh(sum));
}

__m512 load(__mmask16 mask, const float* c) {
  return _mm512_maskz_loadu_ps(mask, c);
}
__m512 load(__mmask16 /*mask*/, const bfloat16* /*c*/) {
  return _mm512_setzero_ps();
}

// What the sums of rows [i, i + rows) and columns [j, j + 32) begin with.
template <class C>
void begin_block(const PairPanelArgs<C>& args, int64_t i, int64_t rows, int64_t j, float* sums) {
  for (int64_t v = j; v < j + kBlockColumns; v += kPairLanes) {
    const __mmask16 mask = first_lanes(args.columns > v ? args.columns - v : 0);
    const bool biased = args.mode == SumMode::kBegin && args.bias != nullptr;
    const __m512 begin = biased ? load(mask, args.bias + v) : _mm512_setzero_ps();
    for (int64_t r = 0; r < kBlockRows; ++r) {
      const bool goes_on = args.mode == SumMode::kContinue && r < rows;
      _mm512_storeu_ps(sums + r * kBlockColumns + v - j,
                       goes_on ? load(mask, args.c + (i + r) * args.ldc + v) : begin);
    }
  }
}

template <class C>
void store_block(const PairPanelArgs<C>& args, int64_t i, int64_t rows, int64_t j,
                 const float* sums) {
  for (int64_t v = j; v < j + kBlockColumns && v < args.columns; v += kPairLanes) {
    const __mmask16 mask = first_lanes(args.columns - v);
    for (int64_t r = 0; r < rows; ++r) {
      C* const to = args.c + (i + r) * args.ldc + v;
      __m512 sum = _mm512_loadu_ps(sums + r * kBlockColumns + v - j);
      if (args.mode == SumMode::kAdd) {
        sum = _mm512_add_ps(load(mask, to), sum);
      }
      store(sum, mask, to);
    }
  }
}

// `rows` rows of `pairs` pairs, to 32 rows of `filled` pairs.
void copy_rows(const bfloat16* from, int64_t row_stride, int64_t rows, int64_t pairs, bfloat16* to,
               int64_t filled) {
  for (int64_t r = 0; r < kBlockRows; ++r) {
    for (int64_t p = 0; p < filled; p += kPairLanes) {
      const int64_t left = r < rows && pairs > p ? pairs - p : 0;
      const __m512i v = _mm512_maskz_loadu_epi32(first_lanes(left), from + r * row_stride + 2 * p);
      _mm512_storeu_si512(to + 2 * (r * filled + p), v);
    }
  }
}

// Rows [i, i + rows) of A. `scratch` has room for 32 rows of whole steps.
template <class C>
Tiled tiled_a(const PairPanelArgs<C>& args, int64_t i, int64_t rows, bfloat16* scratch) {
  const bfloat16* const a = args.a + i * args.a_row_stride;
  const int64_t full = full_steps(args.pairs);
  if (args.a_pair_stride == 2 && rows == kBlockRows) {
    if (full < args.pairs) {
      copy_rows(a + 2 * full, args.a_row_stride, rows, args.pairs - full, scratch, kPairStep);
    }
    return {a, args.a_row_stride, scratch, 2 * kPairStep};
  }
  const int64_t filled = full_steps(args.pairs + kPairStep - 1);
  if (args.a_pair_stride == 2) {
    copy_rows(a, args.a_row_stride, rows, args.pairs, scratch, filled);
  } else {
    for (int64_t j = 0; j < 2 * kBlockRows * filled; j += 2 * kPairLanes) {
      _mm512_storeu_si512(scratch + j, _mm512_setzero_si512());
    }
    transpose_pairs(a, args.a_row_stride, args.a_pair_stride, rows, args.pairs, scratch,
                    2 * filled);
  }
  return {scratch, 2 * filled, scratch + 2 * full, 2 * filled};
}

// The panel of B. `scratch` has room for one step of it.
template <class C>
Tiled tiled_b(const PairPanelArgs<C>& args, bfloat16* scratch) {
  const int64_t full = full_steps(args.pairs);
  for (int64_t p = full; full < args.pairs && p < full + kPairStep; ++p) {
    const __mmask16 mask = first_lanes(p < args.pairs ? kPairLanes : 0);
    for (int64_t j = 0; j < args.columns; j += kPairLanes) {
      const __m512i v = _mm512_maskz_loadu_epi32(mask, args.b + p * args.ldb + 2 * j);
      _mm512_storeu_si512(scratch + 2 * ((p - full) * kPairPanelColumns + j), v);
    }
  }
  return {args.b, args.ldb, scratch, 2 * kPairPanelColumns};
}

template <class C>
void multiply_panel(const PairPanelArgs<C>& args) {
  thread_local const TileConfig config;
  // In pairs, which are as large as floats.
  constexpr int64_t kSums = kBlockRows * kBlockColumns;
  constexpr int64_t kStepB = kPairStep * kPairPanelColumns;
  const int64_t most_a = kBlockRows * full_steps(args.pairs + kPairStep - 1);
  float* const sums = scratch_floats(kSums + kStepB + most_a);
  auto* const scratch_b = reinterpret_cast<bfloat16*>(sums + kSums);
  auto* const scratch_a = reinterpret_cast<bfloat16*>(sums + kSums + kStepB);
  const Tiled b = tiled_b(args, scratch_b);
  for (int64_t i = 0; i < args.rows; i += kBlockRows) {
    const int64_t rows = args.rows - i < kBlockRows ? args.rows - i : kBlockRows;
    const Tiled a = tiled_a(args, i, rows, scratch_a);
    for (int64_t j = 0; j < args.columns; j += kBlockColumns) {
      begin_block(args, i, rows, j, sums);
      multiply_block(args.pairs, a, b, j, args.columns - j > kPairLanes, sums);
      store_block(args, i, rows, j, sums);
    }
  }
}

}  // namespace
}  // namespace chargrad::kernels
HWY_POP_ATTRIBUTES

namespace chargrad::kernels {

const PairTileKernels& pair_tile_kernels_amx() {
  static constexpr PairTileKernels kTable = {&multiply_panel<float>, &multiply_panel<bfloat16>,
                                             /*reads_rows=*/true};
  return kTable;
}

}  // namespace chargrad::kernels
#endif
