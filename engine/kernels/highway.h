// Settings for Google Highway; every *_simd.cpp includes this before any header of Highway's.
//
// A file that is compiled once per target looks like this:
//
//   #include "engine/kernels/cpu.h"
//   #include "engine/kernels/highway.h"
//   #include "engine/kernels/scale.h"
//   #include "engine/kernels/scale_ref.h"
//   #include "engine/threads.h"
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "engine/kernels/scale_simd.cpp"  // this file
//   #include <hwy/foreach_target.h>  // must come before <hwy/highway.h>; sorted, it does
//   #include <hwy/highway.h>
//
//   HWY_BEFORE_NAMESPACE();
//   namespace chargrad::kernels {
//   namespace HWY_NAMESPACE {
//   namespace {  // Nothing of a target may be visible to the linker.
//
//   namespace hn = hwy::HWY_NAMESPACE;
//
//   void scale_floats(float a, const float* x, float* y, int64_t n) {
//     const hn::ScalableTag<float> d;
//     const auto va = hn::Set(d, a);
//     const auto lanes = static_cast<int64_t>(hn::Lanes(d));
//     int64_t i = 0;
//     for (; i + lanes <= n; i += lanes) {
//       hn::StoreU(hn::Mul(va, hn::LoadU(d, x + i)), d, y + i);
//     }
//     if (i < n) {  // The tail: lanes outside the mask are not touched and load as zero.
//       const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
//       hn::BlendedStore(hn::Mul(va, hn::MaskedLoad(mask, d, x + i)), mask, d, y + i);
//     }
//   }
//
//   }  // namespace
//   }  // namespace HWY_NAMESPACE
//   }  // namespace chargrad::kernels
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace chargrad::kernels {
//
//   HWY_EXPORT(scale_floats);
//
//   template <>
//   void scale<float>(float a, const float* x, float* y, int64_t n) {
//     if (active_tier() == Tier::kRef) {  // Asked before every dispatch: it sets Highway's target.
//       ref::scale(a, x, y, n);
//       return;
//     }
//     const auto run = HWY_DYNAMIC_DISPATCH(scale_floats);
//     parallel_for(...);  // Over fixed chunks; each calls run.
//   }
//
//   }  // namespace chargrad::kernels
//   #endif
//
// Templates and inline functions that other files see must not be used between BEFORE and AFTER
// (std::vector, std::max, ...): that copy would be compiled with this target's instructions, and
// the linker may keep it for everyone. HWY_MIN and HWY_MAX are macros and safe. A vector constant
// is made where it is used, never static. Lambdas are fine.
#pragma once

#if defined(__x86_64__)
// The targets that the tests run, and no other: AVX3 (tiers avx512 and better) and AVX2. AVX2 is
// called the baseline so that no SSE or scalar version is made; a CPU without AVX2 uses the ref
// tier, which never calls Highway.
#define HWY_BASELINE_TARGETS HWY_AVX2
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#elif defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
