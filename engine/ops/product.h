// What linear and matmul share: the dtypes of a product. Not public.
#pragma once

#include <utility>

#include "engine/dtype.h"

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

}  // namespace chargrad
