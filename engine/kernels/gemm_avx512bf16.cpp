// Register tile of the bfloat16 product by AVX512-BF16.
//
// The tile is 6 rows by 4 vectors: 24 sums, 4 vectors of B's pairs and one broadcast pair of A in
// 32 registers; 10 loads serve 24 dot products. A narrower panel uses as many vectors as it needs,
// a last tile as many rows as there are. Any sizes and strides are taken.
#include "engine/kernels/gemm_tile_bf16.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")
namespace chargrad::kernels {
namespace {

constexpr int64_t kRows = 6;
constexpr int64_t kLine = 64;  // Bytes of a cache line.

__m512bh load_pairs(const bfloat16* b) {
  return (__m512bh)_mm512_loadu_si512(b);
}

__m512bh broadcast_pair(const bfloat16* a) {
  int pair = 0;
  __builtin_memcpy(&pair, a, sizeof(pair));
  return (__m512bh)_mm512_set1_epi32(pair);
}

// A pair whose second half is 0 and is not read.
__m512bh broadcast_half_pair(const bfloat16* a) {
  return (__m512bh)_mm512_set1_epi32(a->bits);
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
__m512 load(__mmask16, const bfloat16*) {
  return _mm512_setzero_ps();
}

// Where the lines begin that a tile of `pairs` asks for, one a pair: what `ahead` has next or,
// where that is null or done, the next tile's rows of A. One comparison a pair, to stop in time,
// made the tile 8 % slower.
const std::byte* take_lines(Ahead* ahead, const bfloat16* next_a, int64_t pairs) {
  if (ahead != nullptr && ahead->next >= ahead->end) {
    *ahead = {ahead->then, ahead->last, ahead->last, ahead->last};
  }
  if (ahead == nullptr || ahead->next >= ahead->end) {
    return reinterpret_cast<const std::byte*>(next_a);
  }
  const std::byte* const next = ahead->next;
  ahead->next += pairs * kLine;
  return next;
}

// One register tile: kR rows by kV vectors. `last` masks the last vector's columns.
template <int64_t kR, int64_t kV, class C>
HWY_INLINE void multiply_tile(const PairPanelArgs<C>& args, const bfloat16* HWY_RESTRICT a,
                              C* HWY_RESTRICT c, __mmask16 last) {
  __m512 sum[kR][kV];
  const auto mask = [&](int64_t v) { return v + 1 == kV ? last : __mmask16{0xffff}; };
  HWY_UNROLL(4)
  for (int64_t v = 0; v < kV; ++v) {
    const bool biased = args.mode == SumMode::kBegin && args.bias != nullptr;
    const __m512 begin = biased ? load(mask(v), args.bias + v * kPairLanes) : _mm512_setzero_ps();
    HWY_UNROLL(6)
    for (int64_t r = 0; r < kR; ++r) {
      sum[r][v] = args.mode == SumMode::kContinue ? load(mask(v), c + r * args.ldc + v * kPairLanes)
                                                  : begin;
    }
  }

  // The tile below is next. Asking past C's end is harmless.
  HWY_UNROLL(6)
  for (int64_t r = 0; r < kR; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kV; ++v) {
      _mm_prefetch(c + (kR + r) * args.ldc + v * kPairLanes, _MM_HINT_T0);
    }
  }
  // So are its rows of A, where they lie one after the other: a line for each pair, as one of a
  // tile's lines is used in that time or less. Elsewhere something else may be.
  const std::byte* asked = take_lines(args.ahead, a + kR * args.a_row_stride, args.pairs);
  const bfloat16* HWY_RESTRICT b = args.b;
  const auto add_pair = [&](auto broadcast) __attribute__((always_inline)) {
    __m512bh row[kV];
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kV; ++v) {
      row[v] = load_pairs(b + v * kPairLanes * 2);
    }
    HWY_UNROLL(6)
    for (int64_t r = 0; r < kR; ++r) {
      const __m512bh x = broadcast(a + r * args.a_row_stride);
      HWY_UNROLL(4)
      for (int64_t v = 0; v < kV; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, row[v]);
      }
    }
  };
  for (int64_t p = args.odd_k ? 1 : 0; p < args.pairs; ++p) {
    add_pair(broadcast_pair);
    _mm_prefetch(asked, _MM_HINT_T0);
    asked += kLine;
    a += args.a_pair_stride;
    b += args.ldb;
  }
  if (args.odd_k) {
    add_pair(broadcast_half_pair);
  }

  HWY_UNROLL(6)
  for (int64_t r = 0; r < kR; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kV; ++v) {
      C* const to = c + r * args.ldc + v * kPairLanes;
      if (args.mode == SumMode::kAdd) {
        sum[r][v] = _mm512_add_ps(load(mask(v), to), sum[r][v]);
      }
      store(sum[r][v], mask(v), to);
    }
  }
}

template <int64_t kV, class C>
void multiply_panel_of(const PairPanelArgs<C>& args) {
  const int64_t tail = args.columns - (kV - 1) * kPairLanes;
  const auto last = static_cast<__mmask16>((1u << tail) - 1);
  const bfloat16* a = args.a;
  C* c = args.c;
  int64_t rows = args.rows;
  for (; rows >= kRows; rows -= kRows) {
    multiply_tile<kRows, kV>(args, a, c, last);
    a += kRows * args.a_row_stride;
    c += kRows * args.ldc;
  }
  switch (rows) {
    case 5:
      return multiply_tile<5, kV>(args, a, c, last);
    case 4:
      return multiply_tile<4, kV>(args, a, c, last);
    case 3:
      return multiply_tile<3, kV>(args, a, c, last);
    case 2:
      return multiply_tile<2, kV>(args, a, c, last);
    case 1:
      return multiply_tile<1, kV>(args, a, c, last);
    default:
      return;
  }
}

template <class C>
void multiply_panel(const PairPanelArgs<C>& args) {
  switch ((args.columns + kPairLanes - 1) / kPairLanes) {
    case 4:
      return multiply_panel_of<4>(args);
    case 3:
      return multiply_panel_of<3>(args);
    case 2:
      return multiply_panel_of<2>(args);
    default:
      return multiply_panel_of<1>(args);
  }
}

}  // namespace
}  // namespace chargrad::kernels
HWY_POP_ATTRIBUTES

namespace chargrad::kernels {

const PairTileKernels& pair_tile_kernels_avx512bf16() {
  static constexpr PairTileKernels kTable = {&multiply_panel<float>, &multiply_panel<bfloat16>,
                                             /*reads_rows=*/false};
  return kTable;
}

}  // namespace chargrad::kernels
#endif
