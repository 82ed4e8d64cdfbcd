#include "engine/kernels/dropout.h"

#include "engine/check.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {

Tensor dropout(const Tensor& x, double p, bool training, std::optional<DropoutKey> key) {
  check_floating("dropout", x);
  CHARGRAD_CHECK(p >= 0 && p <= 1, "dropout: p must be in [0, 1], got ", p);
  if (!training || p == 0) {
    return x;
  }
  const DropoutKey mask = key ? *key : default_generator().next_dropout_key();
  Tensor y = empty_like(x);
  visit_any_floating(x.dtype(), [&]<class S>() {
    kernels::dropout(x.contiguous().data<S>(), y.data<S>(), x.numel(), p, mask);
  });

  // The mask is a constant factor of each element, so dx is the same function of dy.
  return record("dropout", y, {x}, Saved(), [p, mask](const Tensor& dy, const Saved&) -> Grads {
    Tensor dx = empty_like(dy);
    visit_any_floating(dy.dtype(), [&]<class S>() {
      kernels::dropout(dy.contiguous().data<S>(), dx.data<S>(), dy.numel(), p, mask);
    });
    return {dx};
  });
}

}  // namespace chargrad
