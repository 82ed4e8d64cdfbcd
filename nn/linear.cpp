#include "nn/linear.h"

#include <cmath>

#include "engine/ops.h"

namespace chargrad::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias, Generator& generator) {
  CHARGRAD_CHECK(in_features > 0 && out_features > 0,
                 "Linear: in_features and out_features must be positive, got ", in_features,
                 " and ", out_features);
  // Kaiming-uniform with slope sqrt(5), written so that the bound rounds as PyTorch's does.
  const double fan_in = static_cast<double>(in_features);
  const double gain = std::sqrt(2.0 / (1.0 + 5.0));
  const double bound = std::sqrt(3.0) * (gain / std::sqrt(fan_in));
  weight = uniform_(empty({out_features, in_features}), -bound, bound, generator);
  register_parameter("weight", weight);
  if (with_bias) {
    const double bias_bound = 1 / std::sqrt(fan_in);
    bias = uniform_(empty({out_features}), -bias_bound, bias_bound, generator);
  }
  register_parameter("bias", bias);
}

Tensor Linear::forward(const Tensor& x) const {
  return linear(x, weight, bias);
}

Tensor GELULinear::forward(const Tensor& x) const {
  return gelu_linear(x, weight, bias);
}

}  // namespace chargrad::nn
