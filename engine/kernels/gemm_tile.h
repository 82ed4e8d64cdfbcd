// The innermost parts of the float32 product, one version per CPU tier. Internal to gemm*.cpp:
// what cuts a product into these parts is in gemm_blocks.cpp.
#pragma once

#include <cstdint>

#include "engine/kernels/gemm.h"

namespace chargrad::kernels {

// What the sums of a block begin with and where they go.
enum class SumMode {
  kBegin,     // c = bias (or 0) + products, one chain
  kContinue,  // c = c + products, one chain that goes on
  kAdd        // c = c + (0 + products): a chain of its own
};

// A block of C, at most panel_columns wide.
struct PanelArgs {
  int64_t rows;
  int64_t columns;
  int64_t depth;  // k
  // A (i, k) is a[i * a_row_stride + k * a_k_stride].
  const float* a;
  int64_t a_row_stride;
  int64_t a_k_stride;
  // B (k, j) is b[k * ldb + j], readable up to the next multiple of `lanes` columns.
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  const float* bias;  // Null or `columns` values; read by kBegin only.
  SumMode mode;
};

// A packed matrix of `depth` rows: panel p holds columns [p * width, (p + 1) * width) of it, at
// data + p * width * depth, row by row. The last panel's rows are shorter, a multiple of the lanes
// with zeros at the end. Requires: width is a multiple of the lanes.
struct Panels {
  float* data;
  int64_t depth;
  int64_t columns;
  int64_t width;
};

struct TileKernels {
  int64_t panel_columns;  // Columns that the register tile holds, a multiple of lanes.
  int64_t lanes;          // Floats of a vector.

  void (*multiply_panel)(const PanelArgs& args);

  // Copies rows [k0, k1) of panels [p0, p1). `m` is the whole matrix, (depth, columns).
  void (*pack)(const MatrixView<float>& m, const Panels& to, int64_t k0, int64_t k1, int64_t p0,
               int64_t p1);
};

// The version for the active tier. Requires: that is not the ref tier.
const TileKernels& tile_kernels();

}  // namespace chargrad::kernels
