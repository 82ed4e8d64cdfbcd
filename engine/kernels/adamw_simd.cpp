// adamw.h over float in Highway vectors, and the entry that picks between it and the plain loops.
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/kernels/adamw.h"
#include "engine/kernels/adamw_ref.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/adamw_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

// No fused multiply-add: every operation rounds as in the plain loop.
void adamw_step_simd(const ref::AdamWConstants<float>& c, const float* g, float* p, float* m,
                     float* v, int64_t n) {
  const D d;
  for_lanes(n, [&](auto lanes, int64_t i) {
    const V grad = hn::Mul(lanes.load(g + i), hn::Set(d, c.grad_scale));
    const V m0 = lanes.load(m + i);
    const V m1 = hn::Add(m0, hn::Mul(hn::Set(d, c.one_minus_beta1), hn::Sub(grad, m0)));
    const V v1 = hn::Add(hn::Mul(lanes.load(v + i), hn::Set(d, c.beta2)),
                         hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), grad), grad));
    const V denominator =
        hn::Add(hn::Div(hn::Sqrt(v1), hn::Set(d, c.sqrt_correction2)), hn::Set(d, c.eps));
    const V update = hn::Div(hn::Mul(hn::Set(d, c.minus_step_size), m1), denominator);
    lanes.store(m1, m + i);
    lanes.store(v1, v + i);
    lanes.store(hn::Add(hn::Mul(lanes.load(p + i), hn::Set(d, c.decay)), update), p + i);
  });
}

double sum_of_squares_simd(const float* x, int64_t n) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const auto N = static_cast<int64_t>(hn::Lanes(dd));
  auto s0 = hn::Zero(dd);
  auto s1 = s0;
  int64_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const auto a = hn::PromoteTo(dd, hn::LoadU(df, x + i));
    const auto b = hn::PromoteTo(dd, hn::LoadU(df, x + i + N));
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(s0, s1)));
  for (; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(adamw_step_simd);
HWY_EXPORT(sum_of_squares_simd);

template <class S>
void adamw_step(const AdamW& settings, const S* g, S* p, S* m, S* v, int64_t n) {
  const ref::AdamWConstants<S> constants(settings);
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(adamw_step_simd)
        (constants, g + begin, p + begin, m + begin, v + begin, end - begin);
        return;
      }
    }
    ref::adamw_step(constants, g + begin, p + begin, m + begin, v + begin, end - begin);
  });
}

template <class S>
double sum_of_squares(const S* x, int64_t n) {
  std::vector<double> parts(static_cast<size_t>((n + kChunkElements - 1) / kChunkElements));
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    double& part = parts[static_cast<size_t>(begin / kChunkElements)];
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        part = HWY_DYNAMIC_DISPATCH(sum_of_squares_simd)(x + begin, end - begin);
        return;
      }
    }
    part = ref::sum_of_squares(x + begin, end - begin);
  });
  double sum = 0;
  for (const double part : parts) {
    sum += part;
  }
  return sum;
}

template void adamw_step<float>(const AdamW&, const float*, float*, float*, float*, int64_t);
template void adamw_step<double>(const AdamW&, const double*, double*, double*, double*, int64_t);
template double sum_of_squares<float>(const float*, int64_t);
template double sum_of_squares<double>(const double*, int64_t);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
