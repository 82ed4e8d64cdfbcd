// machine.h: the loops of bfloat16, by intrinsics.
#include "engine/check.h"
#include "engine/kernels/cpu.h"
#include "tests/bench/machine.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <cstring>

namespace chargrad::bench {
namespace {

HWY_PUSH_ATTRIBUTES("avx512f,avx512bf16")

// One unit of a latency of up to 6, or two of 5.
constexpr int kChains = 12;

double dot_products(int64_t rounds) {
  volatile float opaque = 0.0f;
  __m512 x[kChains];
  const auto factor = (__m512bh)_mm512_set1_ps(opaque);
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) {
    x[i] = _mm512_set1_ps(opaque);
  }
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) {
      x[i] = _mm512_dpbf16_ps(x[i], factor, factor);
    }
  }
  __m512 sum = _mm512_setzero_ps();
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) {
    sum = _mm512_add_ps(sum, x[i]);
  }
  opaque = _mm512_cvtss_f32(sum);
  return static_cast<double>(rounds) * kChains *
         64;  // 16 lanes, two multiplications and additions.
}

HWY_POP_ATTRIBUTES
HWY_PUSH_ATTRIBUTES("avx512f,amx-tile,amx-bf16")

// Leaves the thread's tiles configured as it found them: products configure each thread once.
double tile_products(int64_t rounds) {
  // Palette 1; from byte 16 the bytes of a row, from byte 48 the rows of each tile.
  alignas(64) static constexpr struct {
    unsigned char head[16] = {1};
    unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } kConfig;
  alignas(64) unsigned char before[64];  // zeros where there was none, which release the tiles
  _tile_storeconfig(before);
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_loadconfig(before);
  return static_cast<double>(rounds) * 4 * (2 * 16 * 16 * 32);
}

HWY_POP_ATTRIBUTES

}  // namespace

double bfloat16_rounds(int64_t rounds) {
  return kernels::active_tier() == kernels::Tier::kAmx ? tile_products(rounds)
                                                       : dot_products(rounds);
}

}  // namespace chargrad::bench

#else

namespace chargrad::bench {

double bfloat16_rounds(int64_t /*rounds*/) {
  detail::fail_check("bench: this processor has no bfloat16 instructions");
}

}  // namespace chargrad::bench

#endif
