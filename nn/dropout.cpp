#include "nn/dropout.h"

#include "engine/ops.h"

namespace chargrad::nn {

Dropout::Dropout(double p) : p_(p) {
  CHARGRAD_CHECK(p >= 0 && p <= 1, "Dropout: p must be in [0, 1], got ", p);
}

Tensor Dropout::forward(const Tensor& x) const {
  return dropout(x, p_, is_training());
}

}  // namespace chargrad::nn
