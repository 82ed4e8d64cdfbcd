// dropout.h for rows that lie apart in memory and in the mask, as attention has them.
#pragma once

#include <cstdint>

#include "engine/kernels/dropout.h"

namespace chargrad::kernels {

// Row r of x and y begins r * x_ld and r * y_ld elements after the first, and its first element is
// number start + r * start_ld of the mask.
struct DropoutRows {
  int64_t rows;
  int64_t cols;
  const float* x;
  int64_t x_ld;
  float* y;
  int64_t y_ld;
  int64_t start;
  int64_t start_ld;
};

// dropout of each row, on the calling thread. Faster than row by row where start and start_ld are
// multiples of 4.
void dropout_rows(const DropoutRows& rows, double p, DropoutKey key);

}  // namespace chargrad::kernels
