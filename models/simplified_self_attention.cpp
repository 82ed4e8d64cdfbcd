#include "models/simplified_self_attention.h"

#include "engine/ops.h"

namespace chargrad {

AttentionSteps simplified_self_attention(const Tensor& x, double scale) {
  CHARGRAD_CHECK(x.dim() == 2, "simplified_self_attention: x must be (T, C), got shape ",
                 x.shape());
  const Tensor scores = matmul(x, x.transpose(0, 1));  // (T, C) @ (C, T) -> (T, T)
  const Tensor weights = softmax(scores * scale, -1);  // (T, T)
  return {x, x, x, scores, weights, matmul(weights, x)};
}

}  // namespace chargrad
