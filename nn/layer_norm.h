#pragma once

#include "nn/module.h"

namespace chargrad::nn {

// Normalises the last dim: x (..., size) -> same shape. As torch.nn.LayerNorm(size, bias=...):
// weight starts at 1, bias at 0.
class LayerNorm : public Layer {
 public:
  explicit LayerNorm(int64_t size, bool with_bias = true, double eps = 1e-5);
  Tensor forward(const Tensor& x) const override;

  Tensor weight;  // (size)
  Tensor bias;    // (size), undefined without

 private:
  double eps_;
};

}  // namespace chargrad::nn
