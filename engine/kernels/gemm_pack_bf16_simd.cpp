// Packing for the bfloat16 products, by Highway: pairs out of rows of k are interleaved, pairs that
// lie in memory already are moved as words of 32 bits. No arithmetic: the bits arrive as they were.
#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gemm_pack_bf16_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // Before the others.
#include <hwy/highway.h>

#include "engine/kernels/transpose_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {

using DWord = hn::RebindToUnsigned<D>;
using DHalf = hn::Rebind<uint16_t, D>;       // One element a lane.
using DPair = hn::Repartition<uint16_t, D>;  // Two.

constexpr int64_t kLanes = hn::MaxLanes(D());
constexpr int64_t kLineElements = 32;  // Of a cache line.
constexpr int64_t kPrefetchRows = 16;
static_assert(kPairLanes % kLanes == 0);

// A matrix by the bits of its elements.
struct Bits {
  const uint16_t* data;
  int64_t row_stride;
  int64_t column_stride;

  HWY_INLINE const uint16_t* at(int64_t i, int64_t j) const {
    return data + i * row_stride + j * column_stride;
  }
};

// `count` elements or, if they are fewer, the rest 0.
template <class DBits>
HWY_INLINE hn::Vec<DBits> load_bits(DBits d, const uint16_t* p, int64_t count) {
  constexpr int64_t kCount = hn::MaxLanes(d);
  if (count >= kCount) {
    return hn::LoadU(d, p);
  }
#if HWY_TARGET != HWY_AVX3
  // Masked loads of 16 bits would read what lies behind.
  uint16_t buffer[kCount] = {};
  for (int64_t i = 0; i < count; ++i) {
    buffer[i] = p[i];
  }
  return hn::LoadU(d, buffer);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, p);
#endif
}

// Pairs out of two rows, the second one null past an odd end.
HWY_INLINE V interleave(const uint16_t* row, const uint16_t* next, int64_t columns) {
  const DWord d;
  const auto low = hn::PromoteTo(d, load_bits(DHalf(), row, columns));
  if (next == nullptr) {
    return hn::BitCast(D(), low);
  }
  const auto high = hn::PromoteTo(d, load_bits(DHalf(), next, columns));
  return hn::BitCast(D(), hn::Or(low, hn::ShiftLeft<16>(high)));
}

// The pairs of neighbours in memory.
HWY_INLINE V load_pairs(const uint16_t* p, int64_t count) {
  return hn::BitCast(D(), load_bits(DPair(), p, count));
}

HWY_INLINE void store_pairs(V v, uint16_t* p) {
  hn::StoreU(hn::BitCast(DPair(), v), DPair(), p);
}

struct Panel {
  int64_t first;
  int64_t columns;
  int64_t ld;
  uint16_t* data;
};

Panel panel_at(const PairPanels& panels, int64_t p) {
  const int64_t first = p * kPairPanelColumns;
  const int64_t columns = HWY_MIN(kPairPanelColumns, panels.columns - first);
  return {first, columns, (columns + kPairLanes - 1) / kPairLanes * kPairLanes * 2,
          &panels.data[first * ((panels.depth + 1) / 2 * 2)].bits};
}

// Rows [k0, k1) of a panel; column by column lies in memory.
void pack_columns(const Bits& m, int64_t k0, int64_t k1, const Panel& panel) {
  for (int64_t j = 0; 2 * j < panel.ld; j += kLanes) {
    for (int64_t k = k0; k < k1; k += 2 * kLanes) {
      V v[kLanes];
      HWY_UNROLL(16)
      for (int64_t l = 0; l < kLanes; ++l) {
        v[l] = j + l < panel.columns ? load_pairs(m.at(k, panel.first + j + l), k1 - k)
                                     : hn::Zero(D());
      }
      transpose(v);
      const int64_t pairs = HWY_MIN(kLanes, (k1 - k + 1) / 2);
      for (int64_t p = 0; p < pairs; ++p) {
        store_pairs(v[p], panel.data + (k / 2 + p) * panel.ld + 2 * j);
      }
    }
  }
}

// Rows k and k + 1 of a panel, of any strides.
void pack_elements(const Bits& m, int64_t depth, int64_t k, const Panel& panel) {
  uint16_t* const out = panel.data + k / 2 * panel.ld;
  for (int64_t j = 0; 2 * j < panel.ld; ++j) {
    const bool inside = j < panel.columns;
    out[2 * j] = inside ? *m.at(k, panel.first + j) : uint16_t{0};
    out[2 * j + 1] = inside && k + 1 < depth ? *m.at(k + 1, panel.first + j) : uint16_t{0};
  }
}

// Rows k and k + 1 (null past an odd end) of one panel, from its first column on.
void pack_rows(const uint16_t* row, const uint16_t* next, int64_t row_stride, const Panel& panel,
               uint16_t* out) {
  // A line of either row, some rows ahead; past the matrix's end that is harmless.
  for (int64_t j = 0; j < panel.columns; j += kLineElements) {
    hwy::Prefetch(row + j + kPrefetchRows * row_stride);
    hwy::Prefetch(row + j + (kPrefetchRows + 1) * row_stride);
  }
  for (int64_t j = 0; 2 * j < panel.ld; j += kLanes) {
    const uint16_t* const second = next == nullptr ? nullptr : next + j;
    store_pairs(j < panel.columns ? interleave(row + j, second, panel.columns - j) : hn::Zero(D()),
                out + 2 * j);
  }
}

void pack_panels(const MatrixView<bfloat16>& matrix, const PairPanels& to, int64_t k0, int64_t k1,
                 int64_t p0, int64_t p1) {
  const Bits m = {&matrix.data->bits, matrix.row_stride, matrix.column_stride};
  if (m.column_stride == 1) {
    // Two rows over all panels: memory is read in two streams.
    for (int64_t k = k0; k < k1; k += 2) {
      for (int64_t p = p0; p < p1; ++p) {
        const Panel panel = panel_at(to, p);
        const uint16_t* const row = m.at(k, panel.first);
        pack_rows(row, k + 1 < to.depth ? row + m.row_stride : nullptr, m.row_stride, panel,
                  panel.data + k / 2 * panel.ld);
      }
    }
    return;
  }
  for (int64_t p = p0; p < p1; ++p) {
    const Panel panel = panel_at(to, p);
    if (m.row_stride == 1) {
      pack_columns(m, k0, k1, panel);
      continue;
    }
    for (int64_t k = k0; k < k1; k += 2) {
      pack_elements(m, to.depth, k, panel);
    }
  }
}

// 2 * kLanes of k or fewer, over all rows; row by row of k lies in memory.
void pack_rows_across(const Bits& m, int64_t rows, int64_t k, int64_t depth, uint16_t* out,
                      int64_t ld) {
  const int64_t elements = HWY_MIN(2 * kLanes, (depth - k + 1) / 2 * 2);
  for (int64_t i = 0; i < rows; i += kLanes) {
    V v[kLanes];
    HWY_UNROLL(16)
    for (int64_t p = 0; p < kLanes; ++p) {
      const int64_t even = k + 2 * p;
      const uint16_t* const next = even + 1 < depth ? m.at(i, even + 1) : nullptr;
      v[p] = even < depth ? interleave(m.at(i, even), next, rows - i) : hn::Zero(D());
    }
    transpose(v);
    const int64_t block_rows = HWY_MIN(kLanes, rows - i);
    for (int64_t r = 0; r < block_rows; ++r) {
      uint16_t* const to = out + (i + r) * ld + k;
      if (elements == 2 * kLanes) {
        store_pairs(v[r], to);
        continue;
      }
      uint16_t last[2 * kLanes];
      store_pairs(v[r], last);
      for (int64_t l = 0; l < elements; ++l) {
        to[l] = last[l];
      }
    }
  }
}

void pack_rows_of_pairs(const MatrixView<bfloat16>& matrix, int64_t rows, int64_t depth,
                        bfloat16* to, int64_t ld) {
  const Bits m = {&matrix.data->bits, matrix.row_stride, matrix.column_stride};
  uint16_t* const out = &to->bits;
  if (m.row_stride == 1 && m.column_stride != 1) {
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      pack_rows_across(m, rows, k, depth, out, ld);
    }
    return;
  }
  const DPair d;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t k = 0;
    for (; m.column_stride == 1 && k + 2 * kLanes <= depth; k += 2 * kLanes) {
      hn::StoreU(hn::LoadU(d, m.at(i, k)), d, out + i * ld + k);
    }
    for (; k < (depth + 1) / 2 * 2; ++k) {
      out[i * ld + k] = k < depth ? *m.at(i, k) : uint16_t{0};
    }
  }
}

void transpose_words(const bfloat16* from, int64_t row_stride, int64_t pair_stride, int64_t rows,
                     int64_t pairs, bfloat16* to, int64_t ld) {
  const uint16_t* const in = &from->bits;
  uint16_t* const out = &to->bits;
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t p = 0; p < pairs; p += kLanes) {
      const int64_t block_rows = HWY_MIN(kLanes, rows - i);
      const int64_t block_pairs = HWY_MIN(kLanes, pairs - p);
      if (row_stride == 2 && block_rows == kLanes && block_pairs == kLanes) {
        V v[kLanes];
        HWY_UNROLL(16)
        for (int64_t l = 0; l < kLanes; ++l) {
          v[l] = load_pairs(in + 2 * i + (p + l) * pair_stride, 2 * kLanes);
        }
        transpose(v);
        HWY_UNROLL(16)
        for (int64_t l = 0; l < kLanes; ++l) {
          store_pairs(v[l], out + (i + l) * ld + 2 * p);
        }
        continue;
      }
      for (int64_t r = i; r < i + block_rows; ++r) {
        for (int64_t q = p; q < p + block_pairs; ++q) {
          const uint16_t* const pair = in + r * row_stride + q * pair_stride;
          out[r * ld + 2 * q] = pair[0];
          out[r * ld + 2 * q + 1] = pair[1];
        }
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(pack_panels);
HWY_EXPORT(pack_rows_of_pairs);
HWY_EXPORT(transpose_words);

void pack_pairs(const MatrixView<bfloat16>& m, const PairPanels& to, int64_t k0, int64_t k1,
                int64_t p0, int64_t p1) {
  HWY_DYNAMIC_DISPATCH(pack_panels)(m, to, k0, k1, p0, p1);
}

void pack_pair_rows(const MatrixView<bfloat16>& m, int64_t rows, int64_t k, bfloat16* to,
                    int64_t ld) {
  HWY_DYNAMIC_DISPATCH(pack_rows_of_pairs)(m, rows, k, to, ld);
}

void transpose_pairs(const bfloat16* from, int64_t row_stride, int64_t pair_stride, int64_t rows,
                     int64_t pairs, bfloat16* to, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(transpose_words)(from, row_stride, pair_stride, rows, pairs, to, ld);
}

}  // namespace chargrad::kernels
#endif
