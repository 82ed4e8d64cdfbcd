// sum, mean, var over any dims.
#include "engine/kernels/reduce.h"

#include "engine/ops.h"
#include "engine/ops/reduced.h"

namespace chargrad {
namespace {

Tensor reduced_sum(const char* op, const Tensor& x, const std::vector<int64_t>& dims, bool keepdim,
                   bool mean) {
  const ReducedShape shape(op, x, dims);
  Tensor y = empty(shape.result(keepdim), x.dtype());
  const kernels::Reduction r(x.shape(), x.strides(), shape.dims);
  const double divisor = mean ? static_cast<double>(r.count()) : 1;
  if (x.dtype() == kInt64) {
    kernels::sum(r, x.data<int64_t>(), y.data<int64_t>());
    return y;
  }
  visit_any_floating(x.dtype(),
                     [&]<class S>() { kernels::sum(r, x.data<S>(), y.data<S>(), divisor); });

  // dx = dy / n, expanded.
  return record(op, y, {x}, save(), [shape, divisor](const Tensor& dy, const Saved&) -> Grads {
    return {shape.spread(divisor == 1 ? dy : div(dy, divisor))};
  });
}

}  // namespace

Tensor sum_rows(const Tensor& dy, DType dtype) {
  if (dy.dtype() != kBFloat16 || dtype != kFloat32) {
    return sum(dy.detach(), {0}).to(dtype);
  }
  Tensor y = empty({dy.size(1)}, dtype);
  kernels::sum(kernels::Reduction(dy.shape(), dy.strides(), Shape{0}), dy.data<bfloat16>(),
               y.data<float>());
  return y;
}

Tensor sum(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  return reduced_sum("sum", x.dtype() == kBool ? to(x, kInt64) : x, dims, keepdim, /*mean=*/false);
}

Tensor mean(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  check_floating("mean", x);
  return reduced_sum("mean", x, dims, keepdim, /*mean=*/true);
}

Tensor var(const Tensor& x, const std::vector<int64_t>& dims, int64_t correction, bool keepdim) {
  check_floating("var", x);
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [&](const Tensor& wide) { return var(wide, dims, correction, keepdim); });
  }
  const ReducedShape shape("var", x, dims);
  Tensor y = empty(shape.result(keepdim), x.dtype());
  const kernels::Reduction r(x.shape(), x.strides(), shape.dims);
  const auto divisor = static_cast<double>(std::max<int64_t>(0, r.count() - correction));
  visit_floating(x.dtype(),
                 [&]<class S>() { kernels::variance<S>(r, x.data<S>(), y.data<S>(), divisor); });

  // dx = dy * 2 (x - mean) / (n - correction).
  return record("var", y, {x}, save(x),
                [shape, divisor](const Tensor& dy, const Saved& saved) -> Grads {
                  const Tensor& in = saved[0];
                  const Tensor distance = sub(in, mean(in, shape.dims, /*keepdim=*/true));
                  return {mul(distance, mul(reshape(dy, shape.result(true)), 2 / divisor))};
                });
}

}  // namespace chargrad
