#include "models/head.h"

#include <cmath>
#include <limits>

#include "engine/ops.h"

namespace chargrad {

Head::Head(int64_t n_embd, int64_t head_size, int64_t block_size, Generator& generator,
           AttentionScale scale)
    : key(n_embd, head_size, /*with_bias=*/false, generator),
      query(n_embd, head_size, /*with_bias=*/false, generator),
      value(n_embd, head_size, /*with_bias=*/false, generator),
      scale_(scale) {
  CHARGRAD_CHECK(block_size > 0, "Head: block_size must be positive, got ", block_size);
  register_module("key", key);
  register_module("query", query);
  register_module("value", value);
  tril = chargrad::tril(ones({block_size, block_size}));
  register_buffer("tril", tril);
}

Tensor Head::attention_weights(const Tensor& x) const {
  CHARGRAD_CHECK(x.dim() == 3 && x.size(1) >= 1 && x.size(1) <= tril.size(0),
                 "Head: x must be (B, T, C) with T in [1, ", tril.size(0), "], got shape ",
                 x.shape());
  const int64_t T = x.size(1);
  const Tensor k = key(x);    // (B, T, head_size)
  const Tensor q = query(x);  // (B, T, head_size)

  Tensor scores = matmul(q, k.transpose(-2, -1));  // (B, T, T)
  if (scale_ == AttentionScale::kSqrtDk) {
    scores = scores / std::sqrt(static_cast<double>(k.size(-1)));
  }
  const Tensor future = eq(narrow(narrow(tril, 0, 0, T), 1, 0, T), 0);  // (T, T)
  scores = masked_fill(scores, future, -std::numeric_limits<double>::infinity());
  return softmax(scores, -1);
}

Head::Output Head::forward_with_weights(const Tensor& x) const {
  const Tensor weights = attention_weights(x);  // (B, T, T)
  const Tensor v = value(x);                    // (B, T, head_size)
  return {matmul(weights, v), weights};
}

}  // namespace chargrad
