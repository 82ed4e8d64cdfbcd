// What the ops with a product share: its dtypes, and what those of a layer have in common. Not
// public.
#pragma once

#include <utility>

#include "engine/dtype.h"
#include "engine/tensor.h"

namespace chargrad {

// What a product of operands of one dtype adds up in.
inline DType sums_dtype(DType operands) {
  return operands == kBFloat16 ? kFloat32 : operands;
}

// What the kernels can hand out where `wanted` is asked for: bfloat16 operands give bfloat16 or
// their float32 sums, others their own dtype.
inline DType product_dtype(DType operands, DType wanted) {
  return wanted == sums_dtype(operands) ? wanted : operands;
}

// Calls f.template operator()<S, C>() for operands of S and a result of C.
template <class F>
void visit_product(DType operands, DType result, F&& f) {
  if (operands != kBFloat16) {
    visit_floating(operands, [&]<class S>() { f.template operator()<S, S>(); });
  } else if (result == kFloat32) {
    f.template operator()<bfloat16, float>();
  } else {
    f.template operator()<bfloat16, bfloat16>();
  }
}

// Throws unless x (..., in), weight (out, in) and bias (out) or none go together.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

// x (..., n) as (rows, n).
Tensor as_rows(const Tensor& x);

// Fills y (M, N), whose rows are contiguous, with a (M, K) b (K, N) + bias (N), in a dtype that
// product_dtype gives for theirs; a and b of one dtype, the bias, if any, of their sums'.
void product_into(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias = {});

}  // namespace chargrad
