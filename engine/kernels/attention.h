// Scaled dot-product attention, forward and backward, head by head. No matrix of T x keys is ever
// held: memory grows with T + keys. S = float, double or bfloat16; bfloat16 has scores, softmax and
// sums in float, and rounds the weights and the gradients of the scores for its products.
#pragma once

#include <cstdint>

#include "engine/dtype.h"
#include "engine/kernels/dropout.h"

namespace chargrad::kernels {

// One matrix per head: element (b, h, i, j) is data[b * batch + h * head + i * row + j * column].
template <class S>
struct HeadsView {
  S* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 1;
};

// What forward and backward have in common. T queries and `keys` keys of length D, values of
// length E.
template <class S>
struct AttentionArgs {
  int64_t B = 1, H = 1, T = 0, keys = 0, D = 0, E = 0;
  HeadsView<const S> q;           // (T, D)
  HeadsView<const S> k;           // (keys, D)
  HeadsView<const S> v;           // (keys, E)
  HeadsView<const Wide<S>> mask;  // (T, keys), added to the scaled scores; column 1; may be null
  Wide<S> scale = 1;
  bool is_causal = false;  // row i sees columns 0 .. i
  double dropout_p = 0;
  DropoutKey key = {};  // decides on the weight at its index in (B, H, T, keys)
};

// y = dropout(softmax(scale q k^T + mask)) v. lse (B, H, T) holds log sum exp of each row's scores,
// -inf for a row that sees nothing, whose output is zero. A row of y does not depend on how many
// rows there are, nor on columns that it does not see where v is finite there.
//   y (T, E) with column 1, away from the inputs.
template <class S>
void attention_forward(const AttentionArgs<S>& args, const HeadsView<S>& y, Wide<S>* lse);

// What forward left, and the gradient of y.
template <class S>
struct AttentionResult {
  HeadsView<const S> y;   // (T, E)
  HeadsView<const S> dy;  // (T, E)
  const Wide<S>* lse;
};

// Where the gradients go; column 1.
template <class S>
struct AttentionGrads {
  HeadsView<S> dq;  // (T, D)
  HeadsView<S> dk;  // (keys, D)
  HeadsView<S> dv;  // (keys, E)
};

// With P the weights and M the dropout factors:
//   dv = (P M)^T dy, dS = P (M (dy v^T) - rowsum(dy y)), dq = scale dS k, dk = scale dS^T q
template <class S>
void attention_backward(const AttentionArgs<S>& args, const AttentionResult<S>& result,
                        const AttentionGrads<S>& grads);

}  // namespace chargrad::kernels
