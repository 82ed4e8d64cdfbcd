#include "engine/ops/space.h"

#include "engine/ops.h"

namespace chargrad {
namespace {

int kind_of(DType dtype) {
  return dtype == kBool ? 0 : dtype == kInt64 ? 1 : 2;
}

}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
  if ((a.dim() == 0) == (b.dim() == 0)) {
    return promote_types(a.dtype(), b.dtype());
  }
  const DType with_dims = a.dim() > 0 ? a.dtype() : b.dtype();
  const DType single = a.dim() > 0 ? b.dtype() : a.dtype();
  return kind_of(single) > kind_of(with_dims) ? single : with_dims;
}

Tensor number_beside(const Tensor& x, double value) {
  return full({}, value, is_floating(x.dtype()) ? x.dtype() : kFloat32);
}

}  // namespace chargrad
