// Scaled dot-product attention, forward and backward, head by head. The weights of one block of
// rows (forward) or of one head (backward) are all that is held in memory; a causal product skips
// the blocks above the diagonal.
#pragma once

#include <cstdint>

#include "engine/kernels/dropout.h"

namespace chargrad::kernels {

// One matrix per head: element (b, h, i, j) is data[b * batch + h * head + i * row + j * column].
template <class S>
struct HeadsView {
  S* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 0;
};

// What forward and backward have in common. T queries and `keys` keys of length D, values of
// length E.
template <class S>
struct AttentionArgs {
  int64_t B = 1, H = 1, T = 0, keys = 0, D = 0, E = 0;
  HeadsView<const S> q;     // (T, D)
  HeadsView<const S> k;     // (keys, D)
  HeadsView<const S> v;     // (keys, E)
  HeadsView<const S> mask;  // (T, keys), added to the scaled scores; column 1; data may be null
  S scale = 1;
  bool is_causal = false;  // row i sees columns 0 .. i
  double dropout_p = 0;
  DropoutKey key = {};  // decides on the weight at its index in (B, H, T, keys)
};

// y = dropout(softmax(scale q k^T + mask)) v. lse holds log sum exp of each row's scores, -inf
// for a row that sees nothing, whose output is zero.
//   y (B, H, T, E) and lse (B, H, T), contiguous.
template <class S>
void attention_forward(const AttentionArgs<S>& args, S* y, S* lse);

// With P the weights and M the dropout factors:
//   dv = (P M)^T dy, dS = P (M (dy v^T) - rowsum(dy y)), dq = scale dS k, dk = scale dS^T q
//   y, dy (B, H, T, E), lse as above -> dq (B, H, T, D), dk (B, H, keys, D), dv (B, H, keys, E),
//   all contiguous.
template <class S>
void attention_backward(const AttentionArgs<S>& args, const S* y, const S* lse, const S* dy, S* dq,
                        S* dk, S* dv);

}  // namespace chargrad::kernels
