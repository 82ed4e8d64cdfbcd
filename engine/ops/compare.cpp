// Comparisons: bool results, no gradient.
#include <cmath>

#include "engine/kernels/elementwise.h"
#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

template <class Kernel>
Tensor compare(const char* op, const Tensor& left, const Tensor& right, Kernel kernel) {
  const NoGradGuard no_grad;
  const DType common = result_type(left, right);
  const DType dtype = common == kBFloat16 ? kFloat32 : common;
  const Tensor a = to(left, dtype), b = to(right, dtype);
  Tensor y = empty(broadcast_shapes(op, a.shape(), b.shape()), kBool);
  const auto space = space_of(y, a, b);
  visit_all(dtype, [&]<class S>() {
    if constexpr (!std::is_same_v<S, bfloat16>) {
      kernel(space, y.data<bool>(), static_cast<const S*>(a.data<S>()),
             static_cast<const S*>(b.data<S>()));
    }
  });
  return y;
}

// A number to compare integers with: exact if it is whole, else both sides become double.
Tensor number_for(const Tensor& x, double value) {
  if (is_floating(x.dtype())) {
    return full({}, value, x.dtype());
  }
  const bool whole = value == std::floor(value) && std::abs(value) < 0x1p63;
  return full({}, value, whole ? kInt64 : kFloat64);
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) {
  return compare("eq", a, b, [](const auto&... all) { kernels::eq(all...); });
}
Tensor ne(const Tensor& a, const Tensor& b) {
  return compare("ne", a, b, [](const auto&... all) { kernels::ne(all...); });
}
Tensor lt(const Tensor& a, const Tensor& b) {
  return compare("lt", a, b, [](const auto&... all) { kernels::lt(all...); });
}
Tensor le(const Tensor& a, const Tensor& b) {
  return compare("le", a, b, [](const auto&... all) { kernels::le(all...); });
}
Tensor gt(const Tensor& a, const Tensor& b) {
  return compare("gt", a, b, [](const auto&... all) { kernels::gt(all...); });
}
Tensor ge(const Tensor& a, const Tensor& b) {
  return compare("ge", a, b, [](const auto&... all) { kernels::ge(all...); });
}

Tensor eq(const Tensor& a, double b) {
  return eq(a, number_for(a, b));
}
Tensor ne(const Tensor& a, double b) {
  return ne(a, number_for(a, b));
}
Tensor lt(const Tensor& a, double b) {
  return lt(a, number_for(a, b));
}
Tensor le(const Tensor& a, double b) {
  return le(a, number_for(a, b));
}
Tensor gt(const Tensor& a, double b) {
  return gt(a, number_for(a, b));
}
Tensor ge(const Tensor& a, double b) {
  return ge(a, number_for(a, b));
}

}  // namespace chargrad
