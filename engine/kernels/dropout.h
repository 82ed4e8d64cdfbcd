// Dropout masks that need no memory: whether an element is kept depends on the key of the call and
// on the element's index alone. Forward and backward, fused and unfused, on any thread, tier and
// scalar type, see the same mask.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

// Names one dropout call: the generator's seed and how many calls came before.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t call = 0;

  bool operator==(const DropoutKey&) const = default;
};

// Element i has word i % 4 of Philox4x32-10 with counter (i / 4, call), key `seed`, low words
// first. It is dropped if the word is below p * 2^32, rounded to an integer: the true probability
// differs from p by at most 2^-33. From 1 - 2^-33 on, everything is dropped.
//
// y_i = x_i / (1 - p) where element start + i is kept, else 0; y may be x. The gradient is the
// same function of dy. p = 0 copies, p = 1 gives zeros (of a NaN too). With `start`, rows of a
// mask can be applied one by one.
// S is float, double or bfloat16, whose products are rounded once.
// Requires: 0 <= p <= 1, start >= 0.
template <class S>
void dropout(const S* x, S* y, int64_t n, double p, DropoutKey key, int64_t start = 0);

// The factors themselves: mask_i = 1 / (1 - p) where element start + i is kept, else 0. float,
// double.
template <class S>
void dropout_mask(S* mask, int64_t n, double p, DropoutKey key, int64_t start = 0);

// One target's loop, for the choice in dropout_simd.cpp.
template <class S>
struct DropoutFunction {
  // Requires: start is a multiple of 4.
  void (*run)(const S* x, S* y, int64_t n, float scale, uint32_t threshold, DropoutKey key,
              int64_t start);
};

}  // namespace chargrad::kernels
