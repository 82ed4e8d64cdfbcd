// The shapes before and after a reduction, and a sum. Shared by the files in engine/ops; not
// public.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {

struct ReducedShape {
  // `named`: the dims as the caller wrote them, none for all.
  ReducedShape(const char* op, const Tensor& x, const std::vector<int64_t>& named)
      : input(x.shape()), dims(wrap_dims(op, x, named)) {
    if (x.dim() == 0) {  // its one element is reduced whether named 0, -1 or not at all
      dims.clear();
    }
  }

  Shape result(bool keepdim) const {
    Shape shape = input;
    for (const int64_t dim : dims) {
      shape[static_cast<size_t>(dim)] = keepdim ? 1 : -1;
    }
    shape.erase(std::remove(shape.begin(), shape.end(), -1), shape.end());
    return shape;
  }

  // A gradient of the result, repeated over the reduced dims.
  Tensor spread(const Tensor& dy) const { return expand(reshape(dy, result(true)), input); }

  Shape input;
  std::vector<int64_t> dims;  // counted from the front, ascending
};

// The gradient of something that every row of dy had added: dy (rows, n) summed to (n), in `dtype`.
// Rounded to it once. Not recorded.
Tensor sum_rows(const Tensor& dy, DType dtype);

}  // namespace chargrad
