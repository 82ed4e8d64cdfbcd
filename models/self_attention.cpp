#include "models/self_attention.h"

#include <cmath>

#include "engine/ops.h"

namespace chargrad {

SelfAttention::SelfAttention(int64_t d_model, int64_t d_k, int64_t d_v, Generator& generator) {
  CHARGRAD_CHECK(d_model > 0 && d_k > 0 && d_v > 0,
                 "SelfAttention: d_model, d_k and d_v must be positive, got ", d_model, ", ", d_k,
                 " and ", d_v);
  W_Q = randn({d_model, d_k}, kFloat32, generator);
  W_K = randn({d_model, d_k}, kFloat32, generator);
  W_V = randn({d_model, d_v}, kFloat32, generator);
  register_parameter("W_Q", W_Q);
  register_parameter("W_K", W_K);
  register_parameter("W_V", W_V);
}

Tensor SelfAttention::scores(const Tensor& x) const {
  CHARGRAD_CHECK(x.dim() == 3, "SelfAttention: x must be (B, T, d_model), got shape ", x.shape());
  const Tensor Q = matmul(x, W_Q);  // (B, T, d_k)
  const Tensor K = matmul(x, W_K);  // (B, T, d_k)
  const double scale = 1 / std::sqrt(static_cast<double>(K.size(-1)));
  return matmul(Q, K.transpose(-2, -1)) * scale;  // (B, T, T)
}

SelfAttention::Output SelfAttention::forward(const Tensor& x) const {
  const Tensor weights = stable_softmax(scores(x));  // (B, T, T)
  const Tensor V = matmul(x, W_V);                   // (B, T, d_v)
  return {matmul(weights, V), weights};              // (B, T, T) @ (B, T, d_v)
}

Tensor stable_softmax(const Tensor& scores) {
  const Tensor shifted = scores - max(scores, -1, /*keepdim=*/true).values;
  const Tensor exponentials = exp(shifted);
  return exponentials / sum(exponentials, {-1}, /*keepdim=*/true);
}

}  // namespace chargrad
