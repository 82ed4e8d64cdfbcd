// exp, log, sqrt, tanh, sigmoid, relu: one function, six derivatives.
#include "engine/kernels/unary.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// y = f(x). The derivative is written in the output y where that is possible (exp: y;
// sqrt: 1 / (2 y); tanh: 1 - y^2; sigmoid: y (1 - y); relu: [y > 0]), else in x (log: 1 / x).
Tensor unary(const char* op, kernels::Unary f, const Tensor& x) {
  CHARGRAD_CHECK(x.defined(), op, ": input is undefined");
  if (!is_floating(x.dtype())) {
    return unary(op, f, to(x, kFloat32));
  }
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [op, f](const Tensor& wide) { return unary(op, f, wide); });
  }
  const Tensor in = x.contiguous();
  Tensor y = empty_like(x);
  visit_floating(x.dtype(), [&]<class S>() {
    kernels::unary_forward(f, in.data<S>(), y.data<S>(), y.numel());
  });

  const Tensor& kept = kernels::unary_saves_input(f) ? in : y;
  return record(op, y, {x}, save(kept), [f](const Tensor& dy, const Saved& saved) -> Grads {
    const Tensor up = dy.contiguous();
    Tensor dx = empty_like(up);
    visit_floating(up.dtype(), [&]<class S>() {
      kernels::unary_backward(f, saved[0].data<S>(), up.data<S>(), dx.data<S>(), dx.numel());
    });
    return {dx};
  });
}

}  // namespace

Tensor exp(const Tensor& x) {
  return unary("exp", kernels::Unary::kExp, x);
}

Tensor log(const Tensor& x) {
  return unary("log", kernels::Unary::kLog, x);
}

Tensor sqrt(const Tensor& x) {
  return unary("sqrt", kernels::Unary::kSqrt, x);
}

Tensor tanh(const Tensor& x) {
  return unary("tanh", kernels::Unary::kTanh, x);
}

Tensor sigmoid(const Tensor& x) {
  return unary("sigmoid", kernels::Unary::kSigmoid, x);
}

Tensor relu(const Tensor& x) {
  if (x.defined() && x.dtype() == kInt64) {
    return maximum(x, zeros({}, kInt64));
  }
  check_floating("relu", x);
  return unary("relu", kernels::Unary::kRelu, x);
}

}  // namespace chargrad
