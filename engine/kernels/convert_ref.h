// Plain loops of convert.h; bfloat16 itself rounds.
#pragma once

#include <cstdint>

#include "engine/dtype.h"

namespace chargrad::kernels::ref {

inline void round_to_bfloat16(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = bfloat16(x[i]);
  }
}

inline void to_bfloat16(const float* x, bfloat16* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = bfloat16(x[i]);
  }
}

inline void to_float(const bfloat16* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i];
  }
}

}  // namespace chargrad::kernels::ref
