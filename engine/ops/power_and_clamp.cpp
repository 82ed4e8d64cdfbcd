// Functions of a tensor and numbers: pow, clamp.
#include <cmath>
#include <limits>

#include "engine/kernels/elementwise.h"
#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

// Whether a number means an integer, so that int64 stays int64 beside it.
bool is_whole(double value) {
  return value == std::floor(value) && std::abs(value) < 0x1p63;
}

// Integers and bools that must leave the integers; bfloat16.
template <class Op>
Tensor in_float32(const Tensor& x, Op op) {
  return x.dtype() == kBFloat16 ? via_float32(x, op) : op(to(x, kFloat32));
}

}  // namespace

Tensor pow(const Tensor& x, double exponent) {
  const bool whole = is_whole(exponent) && exponent >= 0;
  if (x.dtype() == kBool && whole) {
    return pow(to(x, kInt64), exponent);
  }
  if (x.dtype() == kInt64 && whole) {
    Tensor y = empty_like(x);
    kernels::pow(space_of(y, x), y.data<int64_t>(), x.data<int64_t>(),
                 static_cast<int64_t>(exponent));
    return y;
  }
  if (x.dtype() != kFloat32 && x.dtype() != kFloat64) {
    return in_float32(x, [exponent](const Tensor& wide) { return pow(wide, exponent); });
  }
  Tensor y = empty_like(x);
  const auto space = space_of(y, x);
  visit_floating(x.dtype(),
                 [&]<class S>() { kernels::pow<S>(space, y.data<S>(), x.data<S>(), exponent); });

  // dx = dy * exponent * x^(exponent - 1).
  return record("pow", y, {x}, save(x), [exponent](const Tensor& dy, const Saved& saved) -> Grads {
    Tensor dx = empty_like(dy);
    const auto over = space_of(dx, dy, saved[0]);
    visit_floating(dy.dtype(), [&]<class S>() {
      kernels::pow_backward<S>(over, dx.data<S>(), dy.data<S>(), saved[0].data<S>(), exponent);
    });
    return {dx};
  });
}

namespace {

template <class S>
struct Bounds {
  Bounds(std::optional<double> l, std::optional<double> h)
      : low(l ? static_cast<S>(*l) : kLeast), high(h ? static_cast<S>(*h) : kGreatest) {}

  static constexpr bool kInfinite = std::numeric_limits<S>::has_infinity;
  static constexpr S kGreatest =
      kInfinite ? std::numeric_limits<S>::infinity() : std::numeric_limits<S>::max();
  static constexpr S kLeast =
      kInfinite ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::lowest();
  S low, high;
};

}  // namespace

Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
  CHARGRAD_CHECK(low || high, "clamp: at least one bound is required");
  CHARGRAD_CHECK(!(low && std::isnan(*low)) && !(high && std::isnan(*high)),
                 "clamp: a bound is not a number");
  if (x.dtype() == kInt64 && (!low || is_whole(*low)) && (!high || is_whole(*high))) {
    Tensor y = empty_like(x);
    const Bounds<int64_t> bounds(low, high);
    kernels::clamp<int64_t>(space_of(y, x), y.data<int64_t>(), x.data<int64_t>(), bounds.low,
                            bounds.high);
    return y;
  }
  if (x.dtype() != kFloat32 && x.dtype() != kFloat64) {
    return in_float32(x, [low, high](const Tensor& wide) { return clamp(wide, low, high); });
  }
  Tensor y = empty_like(x);
  const auto space = space_of(y, x);
  visit_floating(x.dtype(), [&]<class S>() {
    const Bounds<S> bounds(low, high);
    kernels::clamp<S>(space, y.data<S>(), x.data<S>(), bounds.low, bounds.high);
  });

  // dx = dy where low <= x <= high.
  return record("clamp", y, {x}, save(x),
                [low, high](const Tensor& dy, const Saved& saved) -> Grads {
                  Tensor dx = empty_like(dy);
                  const auto over = space_of(dx, dy, saved[0]);
                  visit_floating(dy.dtype(), [&]<class S>() {
                    const Bounds<S> bounds(low, high);
                    kernels::clamp_backward<S>(over, dx.data<S>(), dy.data<S>(), saved[0].data<S>(),
                                               bounds.low, bounds.high);
                  });
                  return {dx};
                });
}

}  // namespace chargrad
