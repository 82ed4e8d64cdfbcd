#pragma once

#include "engine/ops.h"
#include "nn/module.h"

namespace chargrad::nn {

// As torch.nn.GELU.
class GELU : public Layer {
 public:
  explicit GELU(GeluApproximate approximate = GeluApproximate::kNone) : approximate_(approximate) {}
  Tensor forward(const Tensor& x) const override { return gelu(x, approximate_); }

 private:
  GeluApproximate approximate_;
};

// As torch.nn.ReLU.
class ReLU : public Layer {
 public:
  Tensor forward(const Tensor& x) const override { return relu(x); }
};

}  // namespace chargrad::nn
