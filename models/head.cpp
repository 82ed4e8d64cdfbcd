#include "models/head.h"

#include <cmath>
#include <limits>

#include "engine/ops.h"

namespace chargrad {

Head::Head(int64_t n_embd, int64_t head_size, int64_t block_size, Generator& generator)
    : key(n_embd, head_size, /*with_bias=*/false, generator),
      query(n_embd, head_size, /*with_bias=*/false, generator),
      value(n_embd, head_size, /*with_bias=*/false, generator) {
  CHARGRAD_CHECK(block_size > 0, "Head: block_size must be positive, got ", block_size);
  register_module("key", key);
  register_module("query", query);
  register_module("value", value);
  tril = chargrad::tril(ones({block_size, block_size}));
  register_buffer("tril", tril);
}

Head::Output Head::forward_with_weights(const Tensor& x) const {
  const int64_t T = x.size(-2);
  CHARGRAD_CHECK(x.dim() == 3 && T >= 1 && T <= tril.size(0),
                 "Head: x must be (B, T, C) with T in [1, ", tril.size(0), "], got shape ",
                 x.shape());
  const Tensor k = key(x);    // (B, T, head_size)
  const Tensor q = query(x);  // (B, T, head_size)
  const Tensor v = value(x);  // (B, T, head_size)

  const double d_k = static_cast<double>(k.size(-1));
  Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(d_k);  // (B, T, T)
  const Tensor future = eq(narrow(narrow(tril, 0, 0, T), 1, 0, T), 0);
  scores = masked_fill(scores, future, -std::numeric_limits<double>::infinity());
  const Tensor weights = softmax(scores, -1);  // (B, T, T)
  return {matmul(weights, v), weights};
}

}  // namespace chargrad
