// convert.h in Highway vectors. Integer arithmetic, as Highway's own conversion truncates where
// the processor's instruction would round.
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

using DBits = hn::RebindToUnsigned<D>;
using DHalf = hn::Rebind<uint16_t, D>;

// The bits of the nearest bfloat16 in the upper half, anything in the lower.
HWY_INLINE hn::Vec<DBits> rounded_bits(V x) {
  const DBits d;
  const auto u = hn::BitCast(d, x);
  // Adds just under a half of the last place; half of it where that place is odd.
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d, 1));
  const auto nearest = hn::Add(u, hn::Add(odd, hn::Set(d, 0x7fff)));
  const auto quiet = hn::Or(u, hn::Set(d, 0x400000));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), quiet, nearest);
}

void round_to_bfloat16_simd(const float* x, float* y, int64_t n) {
  const DBits d;
  for_lanes(n, [&](auto lanes, int64_t i) {
    const auto bits = hn::And(rounded_bits(lanes.load(x + i)), hn::Set(d, 0xffff0000u));
    lanes.store(hn::BitCast(D(), bits), y + i);
  });
}

void to_bfloat16_simd(const float* x, uint16_t* y, int64_t n) {
  const DBits d;
  const hn::RebindToSigned<DBits> signed_d;
  const DHalf half;
  const auto convert = [&](V v) {
    const auto upper = hn::ShiftRight<16>(rounded_bits(v));
    return hn::DemoteTo(half, hn::BitCast(signed_d, upper));  // At most 0xffff: none saturates.
  };
  const int64_t N = lane_count();
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    hn::StoreU(convert(hn::LoadU(D(), x + i)), half, y + i);
  }
  if (i < n) {
    uint16_t last[hn::MaxLanes(d)];
    hn::StoreU(convert(FirstLanes(n - i).load(x + i)), half, last);
    for (int64_t j = i; j < n; ++j) {
      y[j] = last[j - i];
    }
  }
}

void to_float_simd(const uint16_t* x, float* y, int64_t n) {
  const DBits d;
  const DHalf half;
  const auto convert = [&](const uint16_t* p) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, p))));
  };
  const int64_t N = lane_count();
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    hn::StoreU(convert(x + i), D(), y + i);
  }
  if (i < n) {
    uint16_t last[hn::MaxLanes(d)] = {};
    for (int64_t j = i; j < n; ++j) {
      last[j - i] = x[j];
    }
    FirstLanes(n - i).store(convert(last), y + i);
  }
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
  const bool plain = active_tier() == Tier::kRef;
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if (plain) {
      ref::to_bfloat16(x + begin, y + begin, end - begin);
    } else {
      HWY_DYNAMIC_DISPATCH(to_bfloat16_simd)(x + begin, &y[begin].bits, end - begin);
    }
  });
}

void to_float(const bfloat16* x, float* y, int64_t n) {
  const bool plain = active_tier() == Tier::kRef;
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if (plain) {
      ref::to_float(x + begin, y + begin, end - begin);
    } else {
      HWY_DYNAMIC_DISPATCH(to_float_simd)(&x[begin].bits, y + begin, end - begin);
    }
  });
}

}  // namespace chargrad::kernels
#endif
