// What the machine can do, by the instructions of the active tier (engine/kernels/cpu.h): the
// measure that kernels are held against. The ref tier has the peak of Highway's best target.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

#include "engine/dtype.h"

namespace chargrad::bench {

// Does `rounds` rounds of independent float32 multiply-adds in registers; returns how many
// floating-point operations that were.
double multiply_add_rounds(int64_t rounds);

// The sum of n floats, read once. Requires: n is a multiple of 1024.
float read_floats(const float* x, int64_t n);

// The same for bfloat16: dot products of pairs (AVX512-BF16) or tile products (AMX), as the active
// tier has them. Requires: kernels::has_fast_bfloat16().
double bfloat16_rounds(int64_t rounds);

// GF/s of float32 multiply-adds, or of products of bfloat16 (on a tier without instructions for
// them float32's), on the threads set now; the best of a few tries of milliseconds.
double peak_gflops(DType dtype);

// GB/s of reading memory on the threads set now; the best of a few passes over 256 MiB.
double memory_gbytes();

// Sets the number of threads while alive.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

// Seconds since its construction, as a row of add_for_threads counts them: of one thread processor
// time, else the clock's.
class LoopTime {
 public:
  LoopTime() : start_(Clock::now()), processor_(std::clock()) {}
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  std::clock_t processor_;
};

}  // namespace chargrad::bench
