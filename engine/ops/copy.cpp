// Copies: contiguous, clone, to.
#include "engine/kernels/copy.h"

#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {

void copy_into(const Tensor& y, const Tensor& x) {
  const auto space = space_of(y, x);
  visit_all(y.dtype(), [&]<class Y>() {
    visit_all(x.dtype(), [&]<class X>() { kernels::copy(space, y.data<Y>(), x.data<X>()); });
  });
}

namespace {

Tensor copy_of(const Tensor& x, DType dtype) {
  Tensor y = empty(x.shape(), dtype);
  copy_into(y, x);
  return y;
}

Grads pass_on(const Tensor& dy, const Saved& /*saved*/) {
  return {dy};
}

}  // namespace

Tensor contiguous(const Tensor& x) {
  return x.is_contiguous() ? x : record("contiguous", copy_of(x, x.dtype()), {x}, save(), pass_on);
}

Tensor clone(const Tensor& x) {
  return record("clone", copy_of(x, x.dtype()), {x}, save(), pass_on);
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) {
    return x;
  }
  Tensor y = copy_of(x, dtype);
  if (!is_floating(dtype)) {
    return y;
  }
  return record("to", y, {x}, save(), [from = x.dtype()](const Tensor& dy, const Saved&) -> Grads {
    return {to(dy, from)};
  });
}

}  // namespace chargrad
