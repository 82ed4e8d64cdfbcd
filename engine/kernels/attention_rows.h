// What attention does to a block of scores between its matrix products. Serial; for tiers above
// ref. What a row becomes depends on that row alone, and on its visible columns.
#pragma once

#include <cstdint>

#include "engine/dtype.h"
#include "engine/kernels/gemm.h"

namespace chargrad::kernels {

// rows x cols products q k^T, rows `ld` elements apart. Row r sees its columns [0, seen(r)); what
// is made of the others, up to cols, is zero.
struct ScoreBlock {
  int64_t rows;
  int64_t cols;
  int64_t ld;
  int64_t diagonal;  // columns that row 0 sees; each further row sees one more
  bool is_causal;    // else all see all
  float scale;
  const float* mask;  // of (0, 0), added to the scaled score; or null
  int64_t mask_ld;

  int64_t seen(int64_t r) const {
    const int64_t n = is_causal && diagonal + r < cols ? diagonal + r : cols;
    return n > 0 ? n : 0;
  }
};

// The softmax of rows whose columns come block by block: what came so far.
struct SoftmaxRows {
  float* max;     // -inf at first
  float* sum;     // of exp(score - max); 0 at first
  float* shrink;  // out: what this block made of sums before it, exp(max before - max)
};

// s: products -> exp(score - max so far), in place; brings max and sum up to date.
void attention_exponentials(const ScoreBlock& block, float* s, const SoftmaxRows& softmax);

// After the last block: sum -> 1 / sum (0 for a row that saw nothing), lse = max + log(sum).
void attention_normalizers(int64_t rows, const SoftmaxRows& softmax, float* lse);

// y_r *= factor_r, rows `ld` apart.
void attention_scale_rows(int64_t rows, int64_t cols, const float* factors, float* y, int64_t ld);

// s: products q k^T -> weights p = exp(score - lse_r), times m; dp: dy v^T ->
// scale p (m dp - delta_r), both in place. m are dropout's factors, rows ld apart, or null for 1.
void attention_weight_grads(const ScoreBlock& block, float* s, float* dp, const float* lse,
                            const float* delta, const float* m);

// delta_r = sum over e of dy (r, e) y (r, e), of float or bfloat16. Requires: the rows are
// contiguous.
void attention_row_dots(int64_t rows, int64_t cols, const MatrixView<float>& dy,
                        const MatrixView<float>& y, float* delta);
void attention_row_dots(int64_t rows, int64_t cols, const MatrixView<bfloat16>& dy,
                        const MatrixView<bfloat16>& y, float* delta);

// to (r, j) = x (r, j), times factor_r unless factors is null, rounded.
void attention_round_rows(int64_t rows, int64_t cols, const float* x, int64_t ld,
                          const float* factors, bfloat16* to, int64_t to_ld);

// x (rows, cols), rounded, as the packed panels of gemm_tile_bf16.h: of pairs of rows, the other
// half of the last pair zero where rows is odd.
void attention_round_pairs(int64_t rows, int64_t cols, const float* x, int64_t ld, bfloat16* to);

}  // namespace chargrad::kernels
