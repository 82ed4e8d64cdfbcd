// Choosing by a bool tensor: where, masked_fill.
#include "engine/kernels/elementwise.h"
#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

// condition ? a : b, all broadcast to `shape`; a and b of one dtype. No gradient.
Tensor choose(const Shape& shape, const Tensor& condition, const Tensor& a, const Tensor& b) {
  Tensor y = empty(shape, a.dtype());
  const auto space = space_of(y, condition, a, b);
  visit_all(a.dtype(), [&]<class S>() {
    kernels::where<S>(space, y.data<S>(), condition.data<bool>(), a.data<S>(), b.data<S>());
  });
  return y;
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_bool("where", condition, "condition");
  const DType dtype = result_type(a, b);
  const Tensor u = to(a, dtype), v = to(b, dtype);
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", u.shape(), v.shape()));
  return record(
      "where", choose(shape, condition, u, v), {u, v}, save(condition),
      [to_a = u.shape(), to_b = v.shape()](const Tensor& dy, const Saved& saved) -> Grads {
        const Tensor zero = zeros({}, dy.dtype());
        Grads grads(2);
        if (saved.needs_grad(0)) {
          grads[0] = sum_to(choose(dy.shape(), saved[0], dy, zero), to_a);
        }
        if (saved.needs_grad(1)) {
          grads[1] = sum_to(choose(dy.shape(), saved[0], zero, dy), to_b);
        }
        return grads;
      });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check_bool("masked_fill", mask, "mask");
  CHARGRAD_CHECK(broadcast_shapes("masked_fill", x.shape(), mask.shape()) == x.shape(),
                 "masked_fill: the mask must broadcast to the input, got mask ", mask.shape(),
                 " and input ", x.shape());
  check_fits("masked_fill", value, x.dtype());
  Tensor y = choose(x.shape(), mask, full({}, value, x.dtype()), x);
  return record("masked_fill", y, {x}, save(mask),
                [](const Tensor& dy, const Saved& saved) -> Grads {
                  return {choose(dy.shape(), saved[0], zeros({}, dy.dtype()), dy)};
                });
}

}  // namespace chargrad
