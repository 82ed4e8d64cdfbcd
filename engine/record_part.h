// How the ops that take a part of a tensor enter the graph.
#pragma once

#include "engine/autograd.h"

namespace chargrad {

// As record, where y is a part of x: y's element [i, j, ...] is the one at `offset` + i *
// strides[0] + j * strides[1] + ... of a contiguous x. dx is dy there and zero elsewhere; the
// gradients of all parts of x are added up in one tensor.
Tensor record_part(const char* op, Tensor y, const Tensor& x, const Shape& strides, int64_t offset);

}  // namespace chargrad
