// gelu.h over float in Highway vectors, and the entry that picks between it and the plain loops.
#include <cstdint>
#include <type_traits>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/gelu.h"
#include "engine/kernels/gelu_ref.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gelu_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"
#include "engine/kernels/math_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

constexpr float kScale = static_cast<float>(2 * ref::kSqrt2OverPi);
constexpr float kCubic = static_cast<float>(ref::kGeluCubic);
constexpr float kDensityAtZero = static_cast<float>(ref::kInvSqrt2Pi);

// 2 u of the tanh form: (1 + tanh(u)) / 2 = sigmoid(2 u), exact also where tanh(u) nears -1.
HWY_INLINE V twice_u(V x, V x2) {
  const D d;
  return hn::Mul(hn::Mul(x, hn::Set(d, kScale)),
                 hn::MulAdd(x2, hn::Set(d, kCubic), hn::Set(d, 1.0f)));
}

void gelu_forward_simd(const float* x, float* y, int64_t n, bool tanh_form) {
  const D d;
  if (tanh_form) {
    for_lanes(n, [&](auto lanes, int64_t i) {
      const V v = lanes.load(x + i);
      lanes.store(hn::Mul(v, vec_sigmoid(d, twice_u(v, hn::Mul(v, v))).value), y + i);
    });
  } else {
    for_lanes(n, [&](auto lanes, int64_t i) {
      const V v = lanes.load(x + i);
      lanes.store(hn::Mul(v, vec_normal(d, v).cdf), y + i);
    });
  }
}

void gelu_backward_simd(const float* x, const float* dy, float* dx, int64_t n, bool tanh_form) {
  const D d;
  if (tanh_form) {
    for_lanes(n, [&](auto lanes, int64_t i) {
      const V v = lanes.load(x + i);
      const V v2 = hn::Mul(v, v);
      const auto s = vec_sigmoid(d, twice_u(v, v2));
      // d(2 u)/dx = kScale (1 + 3 kCubic x^2).
      const V slope = hn::MulAdd(v2, hn::Set(d, 3 * kCubic * kScale), hn::Set(d, kScale));
      const V gradient = hn::MulAdd(hn::Mul(v, s.derivative), slope, s.value);
      lanes.store(hn::Mul(lanes.load(dy + i), gradient), dx + i);
    });
  } else {
    for_lanes(n, [&](auto lanes, int64_t i) {
      const V v = lanes.load(x + i);
      const auto normal = vec_normal(d, v);
      const V density = hn::Mul(normal.decay, hn::Set(d, kDensityAtZero));
      lanes.store(hn::Mul(lanes.load(dy + i), hn::MulAdd(v, density, normal.cdf)), dx + i);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(gelu_forward_simd);
HWY_EXPORT(gelu_backward_simd);

template <class S>
void gelu_forward(const S* x, S* y, int64_t n, bool tanh_form) {
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(gelu_forward_simd)(x + begin, y + begin, end - begin, tanh_form);
        return;
      }
    }
    ref::gelu_forward(x + begin, y + begin, end - begin, tanh_form);
  });
}

template <class S>
void gelu_backward(const S* x, const S* dy, S* dx, int64_t n, bool tanh_form) {
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(gelu_backward_simd)
        (x + begin, dy + begin, dx + begin, end - begin, tanh_form);
        return;
      }
    }
    ref::gelu_backward(x + begin, dy + begin, dx + begin, end - begin, tanh_form);
  });
}

template void gelu_forward<float>(const float*, float*, int64_t, bool);
template void gelu_forward<double>(const double*, double*, int64_t, bool);
template void gelu_backward<float>(const float*, const float*, float*, int64_t, bool);
template void gelu_backward<double>(const double*, const double*, double*, int64_t, bool);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
