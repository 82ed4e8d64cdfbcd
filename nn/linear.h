#pragma once

#include "engine/generator.h"
#include "nn/module.h"

namespace chargrad::nn {

// y = x W^T + b: x (..., in_features) -> (..., out_features). As torch.nn.Linear: weight (out, in)
// and then bias (out) are drawn from U(-1/sqrt(in), 1/sqrt(in)), number for number.
class Linear : public Layer {
 public:
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true,
         Generator& generator = default_generator());
  Tensor forward(const Tensor& x) const override;

  Tensor weight;  // (out_features, in_features)
  Tensor bias;    // (out_features), undefined without
};

// A Linear behind a GELU, y = GELU(x) W^T + b, as the second half of an MLP: what the GELU of a
// large x gives is never whole in memory (gelu_linear).
class GELULinear : public Linear {
 public:
  using Linear::Linear;
  Tensor forward(const Tensor& x) const override;
};

}  // namespace chargrad::nn
