// Loops over the lanes of float and bfloat16 arrays, once per Highway target; bfloat16 is widened
// on the way in and rounded on the way out. The last, partial vector runs the same instructions as
// the full ones under a mask, so the result of an element does not depend on its place in the
// array, and nothing beyond the array is touched.
#if defined(CHARGRAD_KERNELS_LANES_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHARGRAD_KERNELS_LANES_SIMD_INL_H_
#undef CHARGRAD_KERNELS_LANES_SIMD_INL_H_
#else
#define CHARGRAD_KERNELS_LANES_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "engine/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

using DBits = hn::RebindToUnsigned<D>;
using DHalf = hn::Rebind<uint16_t, D>;
using VHalf = hn::Vec<DHalf>;  // The bits of bfloat16.

HWY_INLINE V widened(VHalf bits) {
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(DBits(), bits)));
}

// The bits of the nearest bfloat16, ties to even, in the upper half, anything in the lower. Integer
// arithmetic, as Highway's own conversion truncates where the processor's instruction would round.
HWY_INLINE hn::Vec<DBits> rounded_bits(V x) {
  const DBits d;
  const auto u = hn::BitCast(d, x);
  // Adds just under a half of the last place; half of it where that place is odd.
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d, 1));
  const auto nearest = hn::Add(u, hn::Add(odd, hn::Set(d, 0x7fff)));
  const auto quiet = hn::Or(u, hn::Set(d, 0x400000));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), quiet, nearest);
}

HWY_INLINE VHalf rounded(V x) {
  const hn::Repartition<uint16_t, D> d;
  const auto halves = hn::BitCast(d, rounded_bits(x));
  return hn::LowerHalf(DHalf(), hn::ConcatOdd(d, halves, halves));
}

// v as it reads back once it was stored as Y.
template <class Y>
HWY_INLINE V as_stored(V v) {
  if constexpr (sizeof(Y) == sizeof(float)) {
    return v;
  } else {
    return hn::BitCast(D(), hn::And(rounded_bits(v), hn::Set(DBits(), 0xffff0000)));
  }
}

HWY_INLINE V set(float value) {
  return hn::Set(D(), value);
}
HWY_INLINE V set(bfloat16 value) {
  return hn::BitCast(D(), hn::Set(DBits(), static_cast<uint32_t>(value.bits) << 16));
}

// All lanes of a vector.
struct AllLanes {
  HWY_INLINE V load(const float* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE V load(const bfloat16* p) const { return widened(hn::LoadU(DHalf(), &p->bits)); }
  HWY_INLINE void store(V v, float* p) const { hn::StoreU(v, D(), p); }
  HWY_INLINE void store(V v, bfloat16* p) const { hn::StoreU(rounded(v), DHalf(), &p->bits); }
  HWY_INLINE V select(V v, V /*otherwise*/) const { return v; }
};

// The first `count` lanes: the others load as zero and are not stored. bfloat16 goes through a
// buffer, as AVX2 has no masks for 16 bits.
struct FirstLanes {
  int64_t count;
  hn::Mask<D> mask;
  HWY_INLINE explicit FirstLanes(int64_t lanes)
      : count(lanes), mask(hn::FirstN(D(), static_cast<size_t>(lanes))) {}
  HWY_INLINE V load(const float* p) const { return hn::MaskedLoad(mask, D(), p); }
  HWY_INLINE V load(const bfloat16* p) const {
    uint16_t bits[hn::MaxLanes(D())] = {};
    for (int64_t i = 0; i < count; ++i) {
      bits[i] = p[i].bits;
    }
    return widened(hn::LoadU(DHalf(), bits));
  }
  HWY_INLINE void store(V v, float* p) const { hn::BlendedStore(v, mask, D(), p); }
  HWY_INLINE void store(V v, bfloat16* p) const {
    uint16_t bits[hn::MaxLanes(D())];
    hn::StoreU(rounded(v), DHalf(), bits);
    for (int64_t i = 0; i < count; ++i) {
      p[i].bits = bits[i];
    }
  }
  HWY_INLINE V select(V v, V otherwise) const { return hn::IfThenElse(mask, v, otherwise); }
};

HWY_INLINE int64_t lane_count() {
  return static_cast<int64_t>(hn::Lanes(D()));
}

// Calls body(lanes, i) for the vectors that cover [0, n); `lanes` is AllLanes or FirstLanes.
template <class Body>
HWY_INLINE void for_lanes(int64_t n, const Body& body) {
  const int64_t N = lane_count();
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    body(AllLanes(), i);
  }
  if (i < n) {
    body(FirstLanes(n - i), i);
  }
}

// Sum over [0, n) of term(lanes, i). Blocks of kSumBlock elements are added in float, four vectors
// at a time, and the blocks in double: the error stays that of about 32 additions for any n.
inline constexpr int64_t kSumBlock = 2048;
template <class Term>
HWY_INLINE double sum_lanes(int64_t n, const Term& term) {
  const D d;
  const int64_t N = lane_count();
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = HWY_MIN(n, begin + kSumBlock);
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = begin;
    for (; i + 4 * N <= end; i += 4 * N) {
      s0 = hn::Add(s0, term(AllLanes(), i));
      s1 = hn::Add(s1, term(AllLanes(), i + N));
      s2 = hn::Add(s2, term(AllLanes(), i + 2 * N));
      s3 = hn::Add(s3, term(AllLanes(), i + 3 * N));
    }
    for (; i + N <= end; i += N) {
      s0 = hn::Add(s0, term(AllLanes(), i));
    }
    if (i < end) {
      const FirstLanes lanes(end - i);
      s1 = hn::Add(s1, lanes.select(term(lanes, i), hn::Zero(d)));
    }
    total += static_cast<double>(
        hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
  }
  return total;
}

// Maximum of x[0, n), -inf for n = 0. A NaN may be passed over.
template <class S>
HWY_INLINE float max_lanes(const S* x, int64_t n) {
  const D d;
  V m = hn::Set(d, -INFINITY);
  const V lowest = m;
  for_lanes(
      n, [&](auto lanes, int64_t i) { m = hn::Max(m, lanes.select(lanes.load(x + i), lowest)); });
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
