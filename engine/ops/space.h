// Tensors as operands of the strided kernels. Shared by the files in engine/ops; not public.
#pragma once

#include "engine/kernels/strided.h"
#include "engine/ops_common.h"

namespace chargrad {

// The space of y's shape, y first; each input broadcasts to it.
template <class... Inputs>
kernels::Strided<static_cast<int>(1 + sizeof...(Inputs))> space_of(const Tensor& y,
                                                                   const Inputs&... inputs) {
  using Space = kernels::Strided<static_cast<int>(1 + sizeof...(Inputs))>;
  [[maybe_unused]] const auto same = [&y](const Tensor& x) {
    return x.is_contiguous() && x.shape() == y.shape();
  };
  if (y.is_contiguous() && (same(inputs) && ...)) {
    return Space::contiguous(y.numel());
  }
  const std::array<Shape, 1 + sizeof...(Inputs)> strides{y.strides(),
                                                         broadcast_strides(inputs, y.shape())...};
  typename Space::StrideLists lists;
  std::copy(strides.begin(), strides.end(), lists.begin());
  return {y.shape(), lists};
}

// The dtype that an op on a and b works in. As torch.result_type: a tensor of shape [] promotes
// one with dims only to a higher kind (bool < integer < floating).
DType result_type(const Tensor& a, const Tensor& b);

// `value` as a tensor of shape [] beside x: in x's dtype if that is floating, else float32.
Tensor number_beside(const Tensor& x, double value);

// y = x, which broadcasts to y's shape, converted to y's dtype.
void copy_into(const Tensor& y, const Tensor& x);

// Zeros of `shape` with dy added at the places along `dim` that `index`, of dy's shape, names.
Tensor scatter_add(const Shape& shape, int64_t dim, const Tensor& index, const Tensor& dy);

}  // namespace chargrad
