// gelu_linear: gelu and the product after it, as an MLP has them.
#include <algorithm>

#include "engine/kernels/gelu.h"
#include "engine/ops.h"
#include "engine/ops/product.h"
#include "engine/ops/reduced.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// y = gelu(x), both contiguous.
void gelu_into(const Tensor& y, const Tensor& x, bool tanh_form) {
  visit_mixed(x.dtype(), y.dtype(), [&]<class X, class Y>() {
    kernels::gelu(x.data<X>(), y.data<Y>(), static_cast<Y*>(nullptr), x.numel(), tanh_form);
  });
}

// dx = dy times the slope at x, all contiguous; dx may be x.
void gelu_backward_into(const Tensor& dx, const Tensor& x, const Tensor& dy, bool tanh_form) {
  visit_mixed(x.dtype(), dy.dtype(), [&]<class X, class Y>() {
    kernels::gelu_backward(x.data<X>(), dy.data<Y>(), dx.data<Y>(), x.numel(), tanh_form);
  });
}

// Rows begin .. begin + count of a matrix.
Tensor rows_of(const Tensor& x, int64_t begin, int64_t count) {
  return as_strided(x, {count, x.size(1)}, x.strides(), x.storage_offset() + begin * x.stride(0));
}

// Calls f(begin, count, part) for equal numbers of rows of x (rows, n) in turn; `part` (count, n)
// is memory of `dtype`, of four times the least that is made again at most: to pack the weight for
// each part costs little beside the part's product.
template <class F>
void for_each_part(const Tensor& x, DType dtype, F&& f) {
  const int64_t rows = x.size(0), row_bytes = std::max<int64_t>(1, x.size(1) * dtype_size(dtype));
  const int64_t most = std::max<int64_t>(1, std::min(rows, least_recomputed() / row_bytes) * 4);
  const int64_t parts = (rows + most - 1) / most;
  const Tensor memory = empty({std::min(most, rows), x.size(1)}, dtype);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = rows * i / parts, count = rows * (i + 1) / parts - begin;
    f(begin, count, rows_of(memory, 0, count));
  }
}

}  // namespace

Tensor gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                   GeluApproximate approximate) {
  check_linear("gelu_linear", x, weight, bias);
  const DType gelu_dtype = autocast_from(x.dtype());
  const DType dtype = autocast_from(promote_types(gelu_dtype, weight.dtype()));
  if (!is_recomputed(x) || dtype != gelu_dtype) {
    return linear(gelu(x, approximate), weight, bias);
  }
  const bool tanh_form = approximate == GeluApproximate::kTanh;
  const Tensor in = as_rows(x.detach()).contiguous();
  const Tensor w = weight.detach().to(dtype).transpose(0, 1);
  const Tensor b = bias.defined() ? bias.detach().to(sums_dtype(dtype)).contiguous() : Tensor();
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  Tensor y = empty(shape, dtype);
  const Tensor out = as_rows(y);
  for_each_part(in, dtype, [&](int64_t begin, int64_t count, const Tensor& part) {
    gelu_into(part, rows_of(in, begin, count), tanh_form);
    product_into(rows_of(out, begin, count), part, w, b);
  });

  // Of gelu and linear: with a = gelu(x), dW = dy^T a, db = sum of dy over rows and
  // dx = dy W gelu'(x), which takes x's memory where nobody else needs it.
  return record(
      "gelu_linear", y, {x, weight, bias}, save(in, weight),
      [tanh_form, x_shape = x.shape(), dtype, db_dtype = bias.defined() ? bias.dtype() : dtype](
          const Tensor& dy, const Saved& saved) -> Grads {
        const Tensor kept_x = saved[0], kept_w = saved[1].to(dtype), up = as_rows(dy);
        Grads grads(3);
        Tensor dx, dw, dw_part;
        if (saved.needs_grad(0)) {
          dx =
              kept_x.dtype() == dtype ? saved.reuse_or_empty(kept_x) : empty(kept_x.shape(), dtype);
          grads[0] = dx.view(x_shape);
        }
        if (saved.needs_grad(1)) {
          grads[1] = dw = zeros(kept_w.shape(), sums_dtype(dtype));
          dw_part = empty_like(dw);
        }
        for_each_part(kept_x, dtype, [&](int64_t begin, int64_t count, const Tensor& part) {
          const Tensor some_x = rows_of(kept_x, begin, count), some_dy = rows_of(up, begin, count);
          if (dw.defined()) {
            gelu_into(part, some_x, tanh_form);
            product_into(dw_part, some_dy.transpose(0, 1), part);
            add_(dw, dw_part);
          }
          if (dx.defined()) {
            product_into(part, some_dy, kept_w);
            gelu_backward_into(rows_of(dx, begin, count), some_x, part, tanh_form);
          }
        });
        if (saved.needs_grad(2)) {
          grads[2] = sum_rows(up, db_dtype);
        }
        return grads;
      });
}

}  // namespace chargrad
