#include "models/self_attention_v1.h"

#include <cmath>

#include "engine/ops.h"

namespace chargrad {

SelfAttentionV1::SelfAttentionV1(int64_t d_in, int64_t d_out, Generator& generator) {
  CHARGRAD_CHECK(d_in > 0 && d_out > 0, "SelfAttentionV1: d_in and d_out must be positive, got ",
                 d_in, " and ", d_out);
  W_query = rand({d_in, d_out}, kFloat32, generator);
  W_key = rand({d_in, d_out}, kFloat32, generator);
  W_value = rand({d_in, d_out}, kFloat32, generator);
  register_parameter("W_query", W_query);
  register_parameter("W_key", W_key);
  register_parameter("W_value", W_value);
}

AttentionSteps SelfAttentionV1::steps(const Tensor& x) const {
  CHARGRAD_CHECK(x.dim() == 2, "SelfAttentionV1: x must be (T, d_in), got shape ", x.shape());
  const Tensor queries = matmul(x, W_query);  // (T, d_out)
  const Tensor keys = matmul(x, W_key);       // (T, d_out)
  const Tensor values = matmul(x, W_value);   // (T, d_out)

  const double d_k = static_cast<double>(keys.size(-1));
  const Tensor scores = matmul(queries, keys.transpose(0, 1));  // row i: token i, every key
  const Tensor weights = softmax(scores / std::sqrt(d_k), -1);  // (T, T)
  return {queries, keys, values, scores, weights, matmul(weights, values)};
}

}  // namespace chargrad
