#include "engine/kernels/mt19937.h"

#include <algorithm>

namespace chargrad::kernels {
namespace {

// Recurrence and tempering of Matsumoto and Nishimura, "Mersenne Twister", 1998.
constexpr int kShift = 397;

uint32_t twist(uint32_t upper, uint32_t lower) {
  const uint32_t mixed = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return (mixed >> 1) ^ ((0u - (mixed & 1u)) & 0x9908b0dfu);
}

}  // namespace

Mt19937::Mt19937(uint32_t seed) {
  uint32_t word = seed;
  for (uint32_t i = 0; i < kWords; ++i) {
    word = i == 0 ? seed : 1812433253u * (word ^ (word >> 30)) + i;
    state_.words[i] = word;
  }
}

void Mt19937::renew() {
  // Three loops without a condition or an index modulo 624, so that a compiler can vectorise them.
  uint32_t* x = state_.words.data();
  for (int k = 0; k < kWords - kShift; ++k) {
    x[k] = x[k + kShift] ^ twist(x[k], x[k + 1]);
  }
  for (int k = kWords - kShift; k < kWords - 1; ++k) {
    x[k] = x[k - (kWords - kShift)] ^ twist(x[k], x[k + 1]);
  }
  x[kWords - 1] = x[kShift - 1] ^ twist(x[kWords - 1], x[0]);
  state_.left = kWords + 1;
  state_.next = 0;
}

void Mt19937::fill(uint32_t* out, int64_t n) {
  while (n > 0) {
    if (state_.left == 1) {
      renew();
    }
    const int64_t count = std::min<int64_t>(n, state_.left - 1);
    const uint32_t* x = state_.words.data() + state_.next;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = temper(x[i]);
    }
    state_.left -= static_cast<int32_t>(count);
    state_.next += static_cast<uint32_t>(count);
    out += count;
    n -= count;
  }
}

}  // namespace chargrad::kernels
