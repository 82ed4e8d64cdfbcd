// Changes of a tensor itself: fill_, zero_, copy_, add_, mul_. (Random ones: random.cpp.)
#include <cmath>

#include "engine/kernels/copy.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

void check_broadcasts_to(const char* op, const Tensor& x, const Tensor& source) {
  CHARGRAD_CHECK(broadcast_shapes(op, x.shape(), source.shape()) == x.shape(), op,
                 ": the source must broadcast to the tensor, got source ", source.shape(), " and ",
                 x.shape());
}

// `source` in x's dtype, not sharing memory with x unless each element lies where x's does.
Tensor operand_beside(const Tensor& x, const Tensor& source) {
  const NoGradGuard no_grad;
  const Tensor same_type = to(source, x.dtype());
  const bool same_places = same_type.storage_offset() == x.storage_offset() &&
                           same_type.shape() == x.shape() && same_type.strides() == x.strides();
  return same_type.storage() != x.storage() || same_places ? same_type : clone(same_type);
}

// The in-place ops are not recorded, so that a source's gradient would be lost without a word.
void check_source(const char* op, const Tensor& source) {
  CHARGRAD_CHECK(!(grad_enabled() && source.requires_grad()), op,
                 ": the source requires grad and would lose it; use a NoGradGuard or detach()");
}

bool is_int64(double value) {
  return value == std::floor(value) && std::abs(value) < 0x1p63;
}

// x = kernel(x, y), y broadcast to x and of its dtype.
template <class Kernel>
void update(const Tensor& x, const Tensor& y, Kernel kernel) {
  const auto space = space_of(x, x, y);
  const auto run = [&]<class S>() {
    kernel(space, x.data<S>(), static_cast<const S*>(x.data<S>()),
           static_cast<const S*>(y.data<S>()));
  };
  if (x.dtype() == kInt64) {
    run.template operator()<int64_t>();
  } else {
    visit_any_floating(x.dtype(), run);
  }
}

}  // namespace

Tensor fill_(const Tensor& x, double value) {
  check_fits("fill_", value, x.dtype());
  begin_in_place("fill_", x);
  const auto space = space_of(x);
  visit_all(x.dtype(),
            [&]<class S>() { kernels::fill<S>(space, x.data<S>(), static_cast<S>(value)); });
  return x;
}

Tensor zero_(const Tensor& x) {
  begin_in_place("zero_", x);
  const auto space = space_of(x);
  visit_all(x.dtype(), [&]<class S>() { kernels::fill<S>(space, x.data<S>(), S{}); });
  return x;
}

Tensor copy_(const Tensor& x, const Tensor& source) {
  check_source("copy_", source);
  check_broadcasts_to("copy_", x, source);
  const Tensor from = operand_beside(x, source);
  begin_in_place("copy_", x);
  copy_into(x, from);
  return x;
}

Tensor add_(const Tensor& x, const Tensor& y, double alpha) {
  check_source("add_", y);
  check_broadcasts_to("add_", x, y);
  CHARGRAD_CHECK(x.dtype() != kBool &&
                     (is_floating(x.dtype()) || (!is_floating(y.dtype()) && is_int64(alpha))),
                 "add_: ", alpha, " times a ", dtype_name(y.dtype()), " cannot be added to a ",
                 dtype_name(x.dtype()), " in place");
  const NoGradGuard no_grad;
  const Tensor operand = operand_beside(x, y);
  const Tensor scaled = alpha == 1 ? operand : mul(operand, full({}, alpha, x.dtype()));
  begin_in_place("add_", x);
  update(x, scaled, [](const auto&... all) { kernels::add(all...); });
  return x;
}

Tensor mul_(const Tensor& x, double value) {
  CHARGRAD_CHECK(x.dtype() != kBool && (is_floating(x.dtype()) || is_int64(value)), "mul_: a ",
                 dtype_name(x.dtype()), " cannot be multiplied by ", value, " in place");
  begin_in_place("mul_", x);
  const NoGradGuard no_grad;
  update(x, full({}, value, x.dtype()), [](const auto&... all) { kernels::mul(all...); });
  return x;
}

}  // namespace chargrad
