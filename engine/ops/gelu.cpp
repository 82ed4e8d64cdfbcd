#include "engine/kernels/gelu.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {

Tensor gelu(const Tensor& x, GeluApproximate approximate) {
  check_floating("gelu", x);
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [approximate](const Tensor& wide) { return gelu(wide, approximate); });
  }
  const bool tanh_form = approximate == GeluApproximate::kTanh;
  const Tensor in = x.contiguous();
  Tensor y = empty_like(x);
  visit_floating(x.dtype(), [&]<class S>() {
    kernels::gelu_forward(in.data<S>(), y.data<S>(), y.numel(), tanh_form);
  });

  // dx = dy * (Phi(x) + x * Phi'(x)), Phi of the same form.
  return record("gelu", y, {x}, save(in),
                [tanh_form](const Tensor& dy, const Saved& saved) -> Grads {
                  const Tensor up = dy.contiguous();
                  Tensor dx = empty_like(up);
                  visit_floating(up.dtype(), [&]<class S>() {
                    kernels::gelu_backward(saved[0].data<S>(), up.data<S>(), dx.data<S>(),
                                           dx.numel(), tanh_form);
                  });
                  return {dx};
                });
}

}  // namespace chargrad
