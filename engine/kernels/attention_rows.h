// What attention does to a block of rows between its matrix products. Serial.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

// `rows` rows of scores, `ld` elements apart, of which row r holds seen(r) columns that take part
// and zeros are written from there to `cols`.
template <class S>
struct ScoreRows {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  int64_t first_row = 0;  // place of row 0 in the whole matrix
  bool is_causal = false;
  S scale = 1;
  const S* mask = nullptr;  // of row 0, or null
  int64_t mask_row = 0;     // elements from one mask row to the next

  int64_t seen(int64_t r) const {
    const int64_t limit = is_causal ? first_row + r + 1 : cols;
    return limit < cols ? limit : cols;
  }
};

// s: products q k^T -> softmax(scale s + mask), in place; lse_r = log sum exp of row r. A row
// without any finite score becomes zeros, its lse -inf.
template <class S>
void attention_weights(const ScoreRows<S>& block, S* s, S* lse);

// The same weights from a known lse.
template <class S>
void attention_weights_again(const ScoreRows<S>& block, S* s, const S* lse);

// ds = scale p (dp - delta_r), in place of dp; zeros where the row does not see.
template <class S>
void attention_score_grad(const ScoreRows<S>& block, const S* p, S* dp, const S* delta);

}  // namespace chargrad::kernels
