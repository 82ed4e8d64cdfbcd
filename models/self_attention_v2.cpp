#include "models/self_attention_v2.h"

#include <cmath>

#include "engine/ops.h"

namespace chargrad {

SelfAttentionV2::SelfAttentionV2(int64_t d_in, int64_t d_out, bool qkv_bias, Generator& generator)
    : W_query(d_in, d_out, qkv_bias, generator),
      W_key(d_in, d_out, qkv_bias, generator),
      W_value(d_in, d_out, qkv_bias, generator) {
  register_module("W_query", W_query);
  register_module("W_key", W_key);
  register_module("W_value", W_value);
}

AttentionSteps SelfAttentionV2::steps(const Tensor& x) const {
  CHARGRAD_CHECK(x.dim() == 2, "SelfAttentionV2: x must be (T, d_in), got shape ", x.shape());
  const Tensor queries = W_query(x);  // (T, d_out)
  const Tensor keys = W_key(x);       // (T, d_out)
  const Tensor values = W_value(x);   // (T, d_out)

  const double d_k = static_cast<double>(keys.size(-1));
  const Tensor scores = matmul(queries, keys.transpose(0, 1));  // (T, T)
  const Tensor weights = softmax(scores / std::sqrt(d_k), -1);  // (T, T)
  return {queries, keys, values, scores, weights, matmul(weights, values)};
}

}  // namespace chargrad
