#include "engine/kernels/gelu.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// x contiguous; y in `dtype`. Fills `slope`, if defined, with dy / dx.
Tensor forward(const Tensor& x, DType dtype, bool tanh_form, const Tensor& slope = {}) {
  Tensor y = empty(x.shape(), dtype);
  visit_mixed(x.dtype(), dtype, [&]<class X, class Y>() {
    kernels::gelu(x.data<X>(), y.data<Y>(), data_or_null<Y>(slope), y.numel(), tanh_form);
  });
  return y;
}

// dy times the slope at x.
Tensor backward(const Tensor& x, const Tensor& dy, bool tanh_form) {
  Tensor dx = reuse_or_empty(dy);
  const Tensor up = dy.contiguous();
  visit_mixed(x.dtype(), dy.dtype(), [&]<class X, class Y>() {
    kernels::gelu_backward(x.data<X>(), up.data<Y>(), dx.data<Y>(), x.numel(), tanh_form);
  });
  return dx;
}

}  // namespace

Tensor gelu(const Tensor& x, GeluApproximate approximate) {
  check_floating("gelu", x);
  const bool tanh_form = approximate == GeluApproximate::kTanh;
  const Tensor in = x.contiguous();
  const DType dtype = autocast_from(x.dtype());

  // dx = dy * (Phi(x) + x * Phi'(x)), Phi of the same form.
  if (is_recomputed(x)) {
    return record(
        "gelu", forward(in, dtype, tanh_form), {x}, save(in),
        [tanh_form](const Tensor& dy, const Saved& saved) -> Grads {
          return {backward(saved[0], dy, tanh_form)};
        },
        [dtype, tanh_form](const Saved& saved) { return forward(saved[0], dtype, tanh_form); });
  }
  // A small x is faster with its slope from the same pass, and hardly worth the memory.
  const Tensor slope = grad_enabled() && x.requires_grad() ? empty(x.shape(), dtype) : Tensor();
  return record("gelu", forward(in, dtype, tanh_form, slope), {x}, save(slope),
                [](const Tensor& dy, const Saved& saved) -> Grads { return {dy * saved[0]}; });
}

}  // namespace chargrad
