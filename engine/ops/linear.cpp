// linear: the product of a layer, with its bias.
#include "engine/kernels/gemm.h"
#include "engine/ops.h"
#include "engine/ops/product.h"
#include "engine/ops/reduced.h"
#include "engine/ops_common.h"

namespace chargrad {

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, x, "x");
  check_floating(op, weight, "weight");
  CHARGRAD_CHECK(weight.dim() == 2, op, ": weight must have shape [out, in], got ", weight.shape());
  CHARGRAD_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1), op,
                 ": the last dim of x must be weight's in, got x ", x.shape(), " and weight ",
                 weight.shape());
  if (bias.defined()) {
    check_floating(op, bias, "bias");
    CHARGRAD_CHECK(bias.shape() == Shape{weight.size(0)}, op,
                   ": bias must have shape [out], got bias ", bias.shape(), " and weight ",
                   weight.shape());
  }
}

Tensor as_rows(const Tensor& x) {
  return x.reshape({numel_of(Shape(x.shape().begin(), x.shape().end() - 1)), x.size(-1)});
}

void product_into(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias) {
  visit_product(a.dtype(), y.dtype(), [&]<class S, class C>() {
    kernels::gemm<S>(a.size(0), b.size(1), a.size(1), {a.data<S>(), a.stride(0), a.stride(1)},
                     {b.data<S>(), b.stride(0), b.stride(1)}, y.data<C>(), b.size(1),
                     data_or_null<kernels::BiasOf<S>>(bias));
  });
}

namespace {

// y (M, N) = a (M, K) b (K, N) + bias (N) in `dtype`; a and b of one dtype, the bias of their
// sums'.
Tensor product(const Tensor& a, const Tensor& b, DType dtype, const Tensor& bias = {}) {
  Tensor y = empty({a.size(0), b.size(1)}, product_dtype(a.dtype(), dtype));
  product_into(y, a, b, bias);
  return y.to(dtype);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear("linear", x, weight, bias);
  const DType dtype = autocast_from(promote_types(x.dtype(), weight.dtype()));
  const Tensor a = as_rows(x.detach()).to(dtype), w = weight.detach().to(dtype);
  const Tensor b = bias.defined() ? bias.detach().to(sums_dtype(dtype)).contiguous() : Tensor();
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  // No op of its own, so that a profile counts the product as linear's.
  const Tensor y =
      as_strided(product(a, w.transpose(0, 1), dtype, b), shape, contiguous_strides(shape), 0);

  // dx = dy W, dW = dy^T x, db = sum of dy over rows. dW first: x, where it is made again for it,
  // is gone before dx takes memory. Beside a large x the weight is rounded again, too.
  return record("linear", y, {x, weight, bias},
                save(a, is_recomputed(x) ? weight : w).recompute(0, x),
                [x_shape = x.shape(), dtype, dx_dtype = x.dtype(), dw_dtype = weight.dtype(),
                 db_dtype = bias.defined() ? bias.dtype() : dtype](const Tensor& dy,
                                                                   const Saved& saved) -> Grads {
                  const Tensor up = as_rows(dy);
                  Grads grads(3);
                  if (saved.needs_grad(1)) {
                    grads[1] = product(up.transpose(0, 1), saved[0], dw_dtype);
                  }
                  if (saved.needs_grad(0)) {
                    grads[0] = product(up, saved[1].to(dtype), dx_dtype).reshape(x_shape);
                  }
                  if (saved.needs_grad(2)) {
                    grads[2] = sum_rows(up, db_dtype);
                  }
                  return grads;
                });
}

}  // namespace chargrad
