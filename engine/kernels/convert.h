// float32 <-> bfloat16 over contiguous arrays. To bfloat16 rounds to nearest, ties to even, on
// every tier; a NaN stays a (quiet) NaN, infinities and the sign of zero are kept, subnormals too.
#pragma once

#include <cstdint>

#include "engine/dtype.h"

namespace chargrad::kernels {

// y = the nearest bfloat16 of x, as float. y may be x.
void round_to_bfloat16(const float* x, float* y, int64_t n);

void to_bfloat16(const float* x, bfloat16* y, int64_t n);

// Exact.
void to_float(const bfloat16* x, float* y, int64_t n);

}  // namespace chargrad::kernels
