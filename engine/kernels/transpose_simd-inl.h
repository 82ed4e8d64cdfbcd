// Squares of 32-bit lanes, transposed in registers; once per Highway target.
#if defined(CHARGRAD_KERNELS_TRANSPOSE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHARGRAD_KERNELS_TRANSPOSE_SIMD_INL_H_
#undef CHARGRAD_KERNELS_TRANSPOSE_SIMD_INL_H_
#else
#define CHARGRAD_KERNELS_TRANSPOSE_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// In place: v[i] lane j becomes v[j] lane i. First 4x4 squares in each block of
// 128 bits, then whole blocks.
HWY_INLINE void transpose(V (&v)[hn::MaxLanes(D())]) {
  const D d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const hn::Repartition<double, D> dd;
  HWY_UNROLL(4)
  for (int64_t g = 0; g < kLanes; g += 4) {
    const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, v[g], v[g + 1]));
    const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, v[g], v[g + 1]));
    const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, v[g + 2], v[g + 3]));
    const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, v[g + 2], v[g + 3]));
    v[g] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
    v[g + 1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
    v[g + 2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
    v[g + 3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
  }
#if HWY_MAX_BYTES == 32
  HWY_UNROLL(4)
  for (int64_t j = 0; j < 4; ++j) {
    const V low = v[j], high = v[4 + j];
    v[j] = hn::ConcatLowerLower(d, high, low);
    v[4 + j] = hn::ConcatUpperUpper(d, high, low);
  }
#elif HWY_MAX_BYTES == 64
  HWY_UNROLL(4)
  for (int64_t j = 0; j < 4; ++j) {
    const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[4 + j]), v[j]);
    const V odd01 = hn::OddEvenBlocks(v[4 + j], hn::SwapAdjacentBlocks(v[j]));
    const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[12 + j]), v[8 + j]);
    const V odd23 = hn::OddEvenBlocks(v[12 + j], hn::SwapAdjacentBlocks(v[8 + j]));
    v[j] = hn::ConcatLowerLower(d, even23, even01);
    v[4 + j] = hn::ConcatLowerLower(d, odd23, odd01);
    v[8 + j] = hn::ConcatUpperUpper(d, even23, even01);
    v[12 + j] = hn::ConcatUpperUpper(d, odd23, odd01);
  }
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#endif
