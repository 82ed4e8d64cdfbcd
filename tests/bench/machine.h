// What the machine can do, by the instructions of the active tier (engine/kernels/cpu.h): the
// measure that kernels are held against. The ref tier has the peak of Highway's best target.
#pragma once

#include <cstdint>

namespace chargrad::bench {

// Does `rounds` rounds of independent float32 multiply-adds in registers; returns how many
// floating-point operations that were.
double multiply_add_rounds(int64_t rounds);

// The sum of n floats, read once. Requires: n is a multiple of 1024.
float read_floats(const float* x, int64_t n);

// The same for bfloat16: dot products of pairs (AVX512-BF16) or tile products (AMX), as the active
// tier has them. Requires: kernels::has_fast_bfloat16().
double bfloat16_rounds(int64_t rounds);

// GF/s of float32 multiply-adds on the threads set now, the best of a few tries of milliseconds.
double peak_gflops();
// The same for products of bfloat16, on a tier without instructions for them that of float32.
double bfloat16_peak_gflops();

// Sets the number of threads while alive.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

}  // namespace chargrad::bench
