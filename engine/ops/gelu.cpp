#include "engine/kernels/gelu.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {

Tensor gelu(const Tensor& x, GeluApproximate approximate) {
  check_floating("gelu", x);
  const bool tanh_form = approximate == GeluApproximate::kTanh;
  const Tensor in = x.contiguous();
  const Tensor y = empty(x.shape(), autocast_from(x.dtype()));
  const Tensor slope = grad_enabled() && x.requires_grad() ? empty_like(y) : Tensor();
  visit_mixed(x.dtype(), y.dtype(), [&]<class X, class Y>() {
    kernels::gelu(in.data<X>(), y.data<Y>(), data_or_null<Y>(slope), y.numel(), tanh_form);
  });

  // dx = dy * (Phi(x) + x * Phi'(x)), Phi of the same form.
  return record("gelu", y, {x}, save(slope),
                [](const Tensor& dy, const Saved& saved) -> Grads { return {dy * saved[0]}; });
}

}  // namespace chargrad
