// Copying, converting and filling arrays of any strides and of all five element types.
#pragma once

#include <cstdint>

#include "engine/dtype.h"
#include "engine/kernels/strided.h"

namespace chargrad::kernels {

// y = x, converted as PyTorch converts: to bfloat16 by rounding to nearest even, floating to
// int64_t by cutting the fraction (NaN and what does not fit become the smallest number), to bool
// as "not zero" (a NaN is true). A transposed source is read in square tiles.
// Y and X are any of the five element types. The arrays must not overlap, unless they are the same
// with the same strides.
template <class Y, class X>
void copy(const Strided<2>& space, Y* y, const X* x);

// y = value. S is any of the five.
template <class S>
void fill(const Strided<1>& space, S* y, S value);

}  // namespace chargrad::kernels
