// convert.h in Highway vectors.
#include "engine/kernels/chunks.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/convert_ref.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/convert_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

void round_to_bfloat16_simd(const float* x, float* y, int64_t n) {
  const DBits d;
  for_lanes(n, [&](auto lanes, int64_t i) {
    const auto bits = hn::And(rounded_bits(lanes.load(x + i)), hn::Set(d, 0xffff0000u));
    lanes.store(hn::BitCast(D(), bits), y + i);
  });
}

void to_bfloat16_simd(const float* x, bfloat16* y, int64_t n) {
  for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(lanes.load(x + i), y + i); });
}

void to_float_simd(const bfloat16* x, float* y, int64_t n) {
  for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(lanes.load(x + i), y + i); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(round_to_bfloat16_simd);
HWY_EXPORT(to_bfloat16_simd);
HWY_EXPORT(to_float_simd);

void round_to_bfloat16(const float* x, float* y, int64_t n) {
  const auto run = active_tier() == Tier::kRef ? &ref::round_to_bfloat16
                                               : HWY_DYNAMIC_DISPATCH(round_to_bfloat16_simd);
  parallel_chunks(n, kChunkElements,
                  [&](int64_t begin, int64_t end) { run(x + begin, y + begin, end - begin); });
}

void to_bfloat16(const float* x, bfloat16* y, int64_t n) {
  const auto run =
      active_tier() == Tier::kRef ? &ref::to_bfloat16 : HWY_DYNAMIC_DISPATCH(to_bfloat16_simd);
  parallel_chunks(n, kChunkElements,
                  [&](int64_t begin, int64_t end) { run(x + begin, y + begin, end - begin); });
}

void to_float(const bfloat16* x, float* y, int64_t n) {
  const auto run =
      active_tier() == Tier::kRef ? &ref::to_float : HWY_DYNAMIC_DISPATCH(to_float_simd);
  parallel_chunks(n, kChunkElements,
                  [&](int64_t begin, int64_t end) { run(x + begin, y + begin, end - begin); });
}

}  // namespace chargrad::kernels
#endif
