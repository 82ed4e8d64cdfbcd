// machine.h: the loops, once per Highway target.
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"
#include "tests/bench/machine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/machine_simd.cpp"
#include <hwy/foreach_target.h>  // Before the others.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace chargrad::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Two units of a latency of 4 or 5 need 10 chains; AVX2 has registers for 12 and two operands.
constexpr int kChains = 12;

double multiply_adds(int64_t rounds) {
  const D d;
  volatile float opaque = 0.5f;
  const V factor = hn::Set(d, opaque), addend = hn::Set(d, opaque);
  V x[kChains];
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) {
    x[i] = hn::Set(d, static_cast<float>(i));
  }
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) {
      x[i] = hn::MulAdd(x[i], factor, addend);
    }
  }
  V sum = hn::Zero(d);
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) {
    sum = hn::Add(sum, x[i]);
  }
  opaque = hn::GetLane(sum);
  return 2.0 * static_cast<double>(rounds) * kChains * static_cast<double>(hn::Lanes(d));
}

float read(const float* x, int64_t n) {
  const D d;
  constexpr int kVectors = 8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    sum[v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < n; i += kVectors * lanes) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = hn::Add(sum[v], hn::LoadU(d, x + i + v * lanes));
    }
  }
  V all = sum[0];
  HWY_UNROLL(8)
  for (int v = 1; v < kVectors; ++v) {
    all = hn::Add(all, sum[v]);
  }
  return hn::GetLane(hn::SumOfLanes(d, all));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::bench {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(read);

double multiply_add_rounds(int64_t rounds) {
  kernels::active_tier();  // Restricts the dispatch.
  return HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds);
}

float read_floats(const float* x, int64_t n) {
  kernels::active_tier();
  return HWY_DYNAMIC_DISPATCH(read)(x, n);
}

}  // namespace chargrad::bench
#endif
