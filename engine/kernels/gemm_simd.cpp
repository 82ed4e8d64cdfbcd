// Register tile and packing of the float32 product, by Highway.
//
// The tile is 6 rows by 4 vectors where there are 32 registers (24 sums, 4 of B, 1 of A; 10 loads
// serve 24 multiply-adds) and 6 by 2 on AVX2 with its 16. A narrower panel uses as many vectors as
// it needs, a last tile as many rows as there are. A is read by broadcasting single elements, so it
// needs no packing where its rows are contiguous; B is read in whole vectors. Any sizes and strides
// are taken. Tiles of 12, 8 or 5 rows for panels of 1, 2, 3 or 5 vectors gained nothing on Zen 4.
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gemm_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // Before the others.
#include <hwy/highway.h>

#include "engine/kernels/transpose_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLanes = hn::MaxLanes(D());
constexpr int64_t kRows = 6;
constexpr int64_t kVectors = HWY_TARGET == HWY_AVX2 ? 2 : 4;

// One register tile: kR rows by kV vectors. `last` masks the last vector's columns.
template <int64_t kR, int64_t kV>
HWY_INLINE void multiply_tile(const PanelArgs& args, const float* HWY_RESTRICT a,
                              float* HWY_RESTRICT c, hn::Mask<D> last) {
  const D d;
  V sum[kR][kV];
  const auto mask = [&](int64_t v) { return v + 1 == kV ? last : hn::FirstN(d, kLanes); };
  HWY_UNROLL(4)
  for (int64_t v = 0; v < kV; ++v) {
    const bool biased = args.mode == SumMode::kBegin && args.bias != nullptr;
    const V begin = biased ? hn::MaskedLoad(mask(v), d, args.bias + v * kLanes) : hn::Zero(d);
    HWY_UNROLL(6)
    for (int64_t r = 0; r < kR; ++r) {
      sum[r][v] = args.mode == SumMode::kContinue
                      ? hn::MaskedLoad(mask(v), d, c + r * args.ldc + v * kLanes)
                      : begin;
    }
  }

  // The tile below is next. Asking past C's end is harmless.
  HWY_UNROLL(6)
  for (int64_t r = 0; r < kR; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kV; ++v) {
      hwy::Prefetch(c + (kR + r) * args.ldc + v * kLanes);
    }
  }
  const float* HWY_RESTRICT b = args.b;
  for (int64_t k = 0; k < args.depth; ++k) {
    V row[kV];
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kV; ++v) {
      row[v] = hn::LoadU(d, b + v * kLanes);
    }
    HWY_UNROLL(6)
    for (int64_t r = 0; r < kR; ++r) {
      const V x = hn::Set(d, a[r * args.a_row_stride]);
      HWY_UNROLL(4)
      for (int64_t v = 0; v < kV; ++v) {
        sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
      }
    }
    a += args.a_k_stride;
    b += args.ldb;
  }

  HWY_UNROLL(6)
  for (int64_t r = 0; r < kR; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kV; ++v) {
      float* const to = c + r * args.ldc + v * kLanes;
      if (args.mode == SumMode::kAdd) {
        sum[r][v] = hn::Add(hn::MaskedLoad(mask(v), d, to), sum[r][v]);
      }
      if (v + 1 == kV) {
        hn::BlendedStore(sum[r][v], last, d, to);
      } else {
        hn::StoreU(sum[r][v], d, to);
      }
    }
  }
}

template <int64_t kV>
void multiply_panel_of(const PanelArgs& args) {
  const D d;
  const auto last = hn::FirstN(d, static_cast<size_t>(args.columns - (kV - 1) * kLanes));
  const float* a = args.a;
  float* c = args.c;
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

void multiply_panel(const PanelArgs& args) {
  const int64_t vectors = (args.columns + kLanes - 1) / kLanes;
#if HWY_TARGET != HWY_AVX2
  if (vectors == 4) {
    return multiply_panel_of<4>(args);
  }
  if (vectors == 3) {
    return multiply_panel_of<3>(args);
  }
#endif
  if (vectors == 2) {
    return multiply_panel_of<2>(args);
  }
  return multiply_panel_of<1>(args);
}

// Columns that lie row by row in memory: at most kLanes of them, to rows of `out` ldo apart.
void pack_transposed(const float* m, int64_t column_stride, int64_t depth, int64_t columns,
                     float* out, int64_t ldo) {
  const D d;
  for (int64_t k = 0; k < depth; k += kLanes) {
    const int64_t left = HWY_MIN(depth - k, kLanes);
    V v[kLanes];
    if (left == kLanes && columns == kLanes) {
      HWY_UNROLL(16)
      for (int64_t j = 0; j < kLanes; ++j) {
        v[j] = hn::LoadU(d, m + k + j * column_stride);
      }
    } else {
      const auto mask = hn::FirstN(d, static_cast<size_t>(left));
      for (int64_t j = 0; j < kLanes; ++j) {
        v[j] = j < columns ? hn::MaskedLoad(mask, d, m + k + j * column_stride) : hn::Zero(d);
      }
    }
    transpose(v);
    if (left == kLanes) {
      HWY_UNROLL(16)
      for (int64_t i = 0; i < kLanes; ++i) {
        hn::StoreU(v[i], d, out + (k + i) * ldo);
      }
    } else {
      for (int64_t i = 0; i < left; ++i) {
        hn::StoreU(v[i], d, out + (k + i) * ldo);
      }
    }
  }
}

void pack_row(const float* row, int64_t columns, float* out) {
  const D d;
  for (; columns >= kLanes; columns -= kLanes, row += kLanes, out += kLanes) {
    hn::StoreU(hn::LoadU(d, row), d, out);
  }
  if (columns > 0) {
    hn::StoreU(hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(columns)), d, row), d, out);
  }
}

struct Panel {
  int64_t columns;
  int64_t ld;
  float* data;
};

Panel panel_at(const Panels& panels, int64_t p) {
  const int64_t columns = HWY_MIN(panels.width, panels.columns - p * panels.width);
  return {columns, (columns + kLanes - 1) / kLanes * kLanes,
          panels.data + p * panels.width * panels.depth};
}

void pack(const MatrixView<float>& m, const Panels& to, int64_t k0, int64_t k1, int64_t p0,
          int64_t p1) {
  const auto element = [&](int64_t k, int64_t j) {
    return m.data + k * m.row_stride + j * m.column_stride;
  };
  if (m.column_stride == 1) {
    // Row by row over all panels: memory is read in one stream.
    for (int64_t k = k0; k < k1; ++k) {
      for (int64_t p = p0; p < p1; ++p) {
        const Panel panel = panel_at(to, p);
        pack_row(element(k, p * to.width), panel.columns, panel.data + k * panel.ld);
      }
    }
    return;
  }
  for (int64_t p = p0; p < p1; ++p) {
    const Panel panel = panel_at(to, p);
    float* const out = panel.data + k0 * panel.ld;
    const int64_t first = p * to.width;
    for (int64_t j = 0; j < panel.columns && m.row_stride == 1; j += kLanes) {
      pack_transposed(element(k0, first + j), m.column_stride, k1 - k0,
                      HWY_MIN(panel.columns - j, kLanes), out + j, panel.ld);
    }
    for (int64_t k = 0; k < k1 - k0 && m.row_stride != 1; ++k) {
      for (int64_t j = 0; j < panel.ld; ++j) {
        out[k * panel.ld + j] = j < panel.columns ? *element(k0 + k, first + j) : 0.0f;
      }
    }
  }
}

const TileKernels& kernels_of_target() {
  static constexpr TileKernels kTable = {kVectors * kLanes, kLanes, &multiply_panel, &pack};
  return kTable;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(kernels_of_target);

const TileKernels& tile_kernels() {
  return HWY_DYNAMIC_DISPATCH(kernels_of_target)();
}

}  // namespace chargrad::kernels
#endif
