// The matrix products of attention: right operands packed once and used for many blocks of rows.
// Internal to attention*.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/attention_head.h"
#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_tile.h"

namespace chargrad::kernels {

class FloatProducts {
 public:
  // Floats that a packed (depth, columns) takes.
  int64_t packed_size(int64_t depth, int64_t columns) const {
    return depth * round_up(columns, tile_.lanes);
  }

  Panels pack(const MatrixView<float>& m, int64_t depth, int64_t columns, float* to) const {
    const Panels panels = {to, depth, columns, tile_.panel_columns};
    tile_.pack(m, panels, 0, depth, 0, ceil_div(columns, panels.width));
    return panels;
  }

  // C (rows, columns) = A (rows, depth) . B, B being rows [first, first + depth) and the first
  // `columns` columns of what is packed. With kContinue, C is added to.
  void multiply(int64_t rows, int64_t columns, int64_t depth, const MatrixView<float>& a,
                const Panels& b, int64_t first, const Rows<float>& c, SumMode mode) const {
    PanelArgs args = {};
    args.rows = rows;
    args.depth = depth;
    args.a = a.data;
    args.a_row_stride = a.row_stride;
    args.a_k_stride = a.column_stride;
    args.ldc = c.ld;
    args.mode = mode;
    for (int64_t j = 0; j < columns; j += b.width) {
      args.columns = std::min(b.width, columns - j);
      args.ldb = round_up(std::min(b.width, b.columns - j), tile_.lanes);
      args.b = b.data + j * b.depth + first * args.ldb;
      args.c = c.data + j;
      tile_.multiply_panel(args);
    }
  }

 private:
  const TileKernels& tile_ = tile_kernels();
};

}  // namespace chargrad::kernels
