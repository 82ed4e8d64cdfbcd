#pragma once

#include "nn/module.h"

namespace chargrad::nn {

// Zeroes elements with probability p in training mode, each call under the default generator's
// next key; nothing in evaluation mode. As torch.nn.Dropout, with the masks of ops.h.
class Dropout : public Layer {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const override;

  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace chargrad::nn
