// What the files in engine/ops share: checks, broadcasting, dtype handling. Not public.
#pragma once

#include <vector>

#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/tensor.h"

namespace chargrad {

// `dim` counted from the front; throws "softmax: dim 3 is out of range for shape [4, 7]".
// A scalar accepts -1 and 0.
int64_t wrap_dim(const char* op, const Tensor& x, int64_t dim);

// The dims in ascending order, each wrapped, all of them for an empty list; throws on repeats.
std::vector<int64_t> wrap_dims(const char* op, const Tensor& x, const std::vector<int64_t>& dims);

// The shape that both broadcast to; throws naming both shapes where there is none.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

// x's strides seen in the larger `shape` that x broadcasts to: 0 for repeated dims.
// Requires: x's shape broadcasts to `shape`.
Shape broadcast_strides(const Tensor& x, const Shape& shape);

// The gradient of a broadcast: `dy` summed down to `shape`. Returns dy where they are equal.
Tensor sum_to(const Tensor& dy, const Shape& shape);

// Throws unless x is defined and floating (kInt64 for check_int64, kBool for check_bool).
void check_floating(const char* op, const Tensor& x, const char* name = "input");
void check_int64(const char* op, const Tensor& x, const char* name);
void check_bool(const char* op, const Tensor& x, const char* name);

// Throws unless a tensor of that dtype can take `value`, without its fraction if it is int64.
void check_fits(const char* op, double value, DType dtype);

// The elements of an optional tensor, null for none.
template <class S>
S* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<S>() : nullptr;
}

// For ops that do not list bfloat16: op(x in float32), rounded back. The conversions are ops
// themselves, so gradients pass. Requires: x is bfloat16.
template <class Op>
Tensor via_float32(const Tensor& x, Op&& op) {
  return op(x.to(kFloat32)).to(kBFloat16);
}

// The start of every in-place op: refuses what cannot be changed, then raises the version.
void begin_in_place(const char* op, const Tensor& x);

// Whether nobody but the caller's one handle holds x's memory, all of it, so that it may be
// overwritten.
bool is_unshared(const Tensor& x);

// Memory for a gradient of dy's shape and dtype, contiguous: dy's own where it is unshared.
Tensor reuse_or_empty(const Tensor& dy);

// A view into x's storage, outside the graph. Requires: it lies within x's memory.
Tensor as_strided(const Tensor& x, Shape shape, Shape strides, int64_t offset);

}  // namespace chargrad
