// linear: the product of a layer, with its bias.
#include "engine/kernels/gemm.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

void check_shapes(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating("linear", x, "x");
  check_floating("linear", weight, "weight");
  CHARGRAD_CHECK(weight.dim() == 2, "linear: weight must have shape [out, in], got ",
                 weight.shape());
  CHARGRAD_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1),
                 "linear: the last dim of x must be weight's in, got x ", x.shape(), " and weight ",
                 weight.shape());
  if (bias.defined()) {
    check_floating("linear", bias, "bias");
    CHARGRAD_CHECK(bias.shape() == Shape{weight.size(0)},
                   "linear: bias must have shape [out], got bias ", bias.shape(), " and weight ",
                   weight.shape());
  }
}

// y (M, N) = a (M, K) b (K, N) + bias (N).
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
  Tensor y = empty({a.size(0), b.size(1)}, a.dtype());
  visit_floating(a.dtype(), [&]<class S>() {
    kernels::gemm<S>(a.size(0), b.size(1), a.size(1), {a.data<S>(), a.stride(0), a.stride(1)},
                     {b.data<S>(), b.stride(0), b.stride(1)}, y.data<S>(), b.size(1),
                     bias.defined() ? bias.data<S>() : nullptr);
  });
  return y;
}

// x (M, in), weight (out, in), bias (out) or undefined -> (M, out), all of one dtype.
//   dx = dy W, dW = dy^T x, db = sum of dy over rows.
Tensor linear_2d(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor b = bias.defined() ? bias.detach().contiguous() : Tensor();
  const Tensor y = product(x.detach(), weight.detach().transpose(0, 1), b);
  return record("linear", y, {x, weight, bias}, save(x, weight),
                [](const Tensor& dy, const Saved& saved) -> Grads {
                  Grads grads(3);
                  if (saved.needs_grad(0)) {
                    grads[0] = product(dy, saved[1]);
                  }
                  if (saved.needs_grad(1)) {
                    grads[1] = product(dy.transpose(0, 1), saved[0]);
                  }
                  if (saved.needs_grad(2)) {
                    grads[2] = sum(dy, {0});
                  }
                  return grads;
                });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_shapes(x, weight, bias);
  const DType dtype = autocast_dtype().value_or(promote_types(x.dtype(), weight.dtype()));
  const bool rounded = dtype == kBFloat16;  // operands rounded, sums in float32, result rounded
  const auto operand = [&](const Tensor& t) {
    return rounded ? t.to(kBFloat16).to(kFloat32) : t.to(dtype);
  };

  Shape shape = x.shape();
  shape.back() = weight.size(0);
  const int64_t rows = numel_of(Shape(x.shape().begin(), x.shape().end() - 1));
  const Tensor y = linear_2d(operand(x).reshape({rows, x.size(-1)}), operand(weight),
                             bias.defined() ? operand(bias) : bias);  // (rows, out)
  return (rounded ? y.to(kBFloat16) : y).reshape(shape);
}

}  // namespace chargrad
