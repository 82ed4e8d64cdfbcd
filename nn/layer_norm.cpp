#include "nn/layer_norm.h"

#include "engine/ops.h"

namespace chargrad::nn {

LayerNorm::LayerNorm(int64_t size, bool with_bias, double eps) : eps_(eps) {
  CHARGRAD_CHECK(size > 0, "LayerNorm: size must be positive, got ", size);
  weight = ones({size});
  register_parameter("weight", weight);
  if (with_bias) {
    bias = zeros({size});
  }
  register_parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, weight, bias, eps_);
}

}  // namespace chargrad::nn
