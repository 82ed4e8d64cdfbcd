// The matrix products of attention, one class per element type: what the loops of
// attention_blocks.cpp are written in. Right operands are packed once and serve many blocks of
// rows; sums are float. Internal to attention*.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/attention_head.h"
#include "engine/kernels/attention_rows.h"
#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/scratch.h"

namespace chargrad::kernels {

class FloatProducts {
 public:
  using Element = float;
  using Left = MatrixView<float>;
  struct Right {
    const float* data;
    int64_t columns;
    int64_t panel_stride;  // elements from one panel to the next
    int64_t row_stride;    // 0: a panel's columns, rounded up to lanes
  };

  // Rows of an input, and a block of weights made of scores `s`, as left operands.
  static Left rows(const MatrixView<float>& m, int64_t /*rows*/, int64_t /*depth*/, Scratch&) {
    return m;
  }
  static Left weights(const Rows<float>& s, int64_t /*rows*/, int64_t /*cols*/, Scratch&) {
    return {s.data, s.ld, 1};
  }
  static Left transposed_weights(const Rows<float>& s, int64_t, int64_t, Scratch&) {
    return {s.data, 1, s.ld};
  }

  Right pack(const MatrixView<float>& m, int64_t depth, int64_t columns, Scratch& memory) const {
    const int64_t width = tile_.panel_columns;
    if (m.column_stride == 1 && columns % tile_.lanes == 0) {
      return {m.data, columns, width, m.row_stride};
    }
    const Panels panels = {memory.floats(depth * round_up(columns, tile_.lanes)), depth, columns,
                           width};
    tile_.pack(m, panels, 0, depth, 0, ceil_div(columns, width));
    return {panels.data, columns, width * depth, 0};
  }

  // C (rows, columns) = A (rows, depth) . B, or C + A . B with kContinue. B is rows [first, first +
  // depth) and the first `columns` columns of what is packed.
  void multiply(int64_t rows, int64_t columns, int64_t depth, const Left& a, const Right& b,
                int64_t first, const Rows<float>& c, SumMode mode) const {
    PanelArgs args = {};
    args.rows = rows;
    args.depth = depth;
    args.a = a.data;
    args.a_row_stride = a.row_stride;
    args.a_k_stride = a.column_stride;
    args.ldc = c.ld;
    args.mode = mode;
    const int64_t width = tile_.panel_columns;
    for (int64_t p = 0; p * width < columns; ++p) {
      args.columns = std::min(width, columns - p * width);
      args.ldb = b.row_stride != 0 ? b.row_stride
                                   : round_up(std::min(width, b.columns - p * width), tile_.lanes);
      args.b = b.data + p * b.panel_stride + first * args.ldb;
      args.c = c.data + p * width;
      tile_.multiply_panel(args);
    }
  }
  void multiply_transposed(int64_t rows, int64_t columns, int64_t depth, const Left& a,
                           const Right& b, int64_t first, const Rows<float>& c,
                           SumMode mode) const {
    multiply(rows, columns, depth, a, b, first, c, mode);
  }

  // Where the sums of a result are added up, and how they get into it: times the row's factor.
  static Rows<float> sums(const Rows<float>& result, int64_t, int64_t, Scratch&) { return result; }
  static void finish(const Rows<float>&, int64_t, int64_t, const Rows<float>&) {}
  static void finish(const Rows<float>& sums, int64_t rows, int64_t cols, const Rows<float>&,
                     const float* factors) {
    attention_scale_rows(rows, cols, factors, sums.data, sums.ld);
  }

 private:
  const TileKernels& tile_ = tile_kernels();
};

// bfloat16: operands are pairs of k. Where k is odd, the left operand's last half pair is zero.
class PairProducts {
 public:
  using Element = bfloat16;
  struct Left {
    const bfloat16* data;
    int64_t row_stride;
    int64_t pair_stride;
  };
  using Right = PairPanels;

  static Left rows(const MatrixView<bfloat16>& m, int64_t rows, int64_t depth, Scratch& memory) {
    if (m.column_stride == 1 && depth % 2 == 0) {
      return {m.data, m.row_stride, 2};
    }
    const int64_t ld = round_up(depth, 2);
    bfloat16* const packed = halves(memory, rows * ld);
    pack_pair_rows(m, rows, depth, packed, ld);
    return {packed, ld, 2};
  }
  static Left weights(const Rows<float>& s, int64_t rows, int64_t cols, Scratch& memory) {
    bfloat16* const rounded = halves(memory, rows * s.ld);
    attention_round_rows(rows, cols, s.data, s.ld, nullptr, rounded, s.ld);
    for (int64_t r = 0; cols % 2 != 0 && r < rows; ++r) {
      rounded[r * s.ld + cols] = bfloat16();
    }
    return {rounded, s.ld, 2};
  }
  static Right transposed_weights(const Rows<float>& s, int64_t rows, int64_t cols,
                                  Scratch& memory) {
    const PairPanels panels = {halves(memory, panels_size(rows, cols)), rows, cols};
    attention_round_pairs(rows, cols, s.data, s.ld, panels.data);
    return panels;
  }

  static Right pack(const MatrixView<bfloat16>& m, int64_t depth, int64_t columns,
                    Scratch& memory) {
    const PairPanels panels = {halves(memory, panels_size(depth, columns)), depth, columns};
    pack_pairs(m, panels, 0, depth, 0, ceil_div(columns, kPairPanelColumns));
    return panels;
  }

  // Requires: `first` is even.
  void multiply(int64_t rows, int64_t columns, int64_t depth, const Left& a, const Right& b,
                int64_t first, const Rows<float>& c, SumMode mode) const {
    PairPanelArgs<float> args = {};
    args.rows = rows;
    args.pairs = ceil_div(depth, 2);
    args.a = a.data;
    args.a_row_stride = a.row_stride;
    args.a_pair_stride = a.pair_stride;
    args.ldc = c.ld;
    args.mode = mode;
    for (int64_t j = 0; j < columns; j += kPairPanelColumns) {
      args.columns = std::min(kPairPanelColumns, columns - j);
      args.ldb = panel_ld(b.columns, j / kPairPanelColumns);
      args.b = b.data + j * round_up(b.depth, 2) + first / 2 * args.ldb;
      args.c = c.data + j;
      tile_.multiply_panel(args);
    }
  }
  // A is the transpose of packed panels, each a number of its rows.
  void multiply_transposed(int64_t rows, int64_t columns, int64_t depth, const Right& a,
                           const Right& b, int64_t first, const Rows<float>& c,
                           SumMode mode) const {
    for (int64_t i = 0; i < rows; i += kPairPanelColumns) {
      const Left part = {a.data + i * round_up(a.depth, 2), 2,
                         panel_ld(a.columns, i / kPairPanelColumns)};
      multiply(std::min(kPairPanelColumns, rows - i), columns, depth, part, b, first,
               {c.at(i), c.ld}, mode);
    }
  }

  static Rows<float> sums(const Rows<bfloat16>&, int64_t rows, int64_t cols, Scratch& memory) {
    const int64_t ld = round_up(cols, kPairLanes);
    return {memory.floats(rows * ld), ld};
  }
  static void finish(const Rows<float>& sums, int64_t rows, int64_t cols,
                     const Rows<bfloat16>& result, const float* factors = nullptr) {
    attention_round_rows(rows, cols, sums.data, sums.ld, factors, result.data, result.ld);
  }

 private:
  static bfloat16* halves(Scratch& memory, int64_t count) {
    return reinterpret_cast<bfloat16*>(memory.floats(ceil_div(count, 2)));
  }

  const PairTileKernels& tile_ = pair_tile_kernels();
};

}  // namespace chargrad::kernels
