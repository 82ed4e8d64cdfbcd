// gelu.h over float and bfloat16 in Highway vectors, and the entry that picks between it and the
// plain loops.
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/gelu.h"
#include "engine/kernels/gelu_ref.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/mixed.h"

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

struct Gelu {
  V y, slope;
};

HWY_INLINE Gelu gelu_exact(V x) {
  const D d;
  const auto normal = vec_normal(d, x);
  const V density = hn::Mul(normal.decay, hn::Set(d, kDensityAtZero));
  return {hn::Mul(x, normal.cdf), hn::MulAdd(x, density, normal.cdf)};
}

// (1 + tanh(u)) / 2 = sigmoid(2 u), exact also where tanh(u) nears -1.
HWY_INLINE Gelu gelu_tanh(V x) {
  const D d;
  const V x2 = hn::Mul(x, x);
  const V twice_u =
      hn::Mul(hn::Mul(x, hn::Set(d, kScale)), hn::MulAdd(x2, hn::Set(d, kCubic), hn::Set(d, 1.0f)));
  const auto s = vec_sigmoid(d, twice_u);
  // d(2 u)/dx = kScale (1 + 3 kCubic x^2).
  const V rise = hn::MulAdd(x2, hn::Set(d, 3 * kCubic * kScale), hn::Set(d, kScale));
  return {hn::Mul(x, s.value), hn::MulAdd(hn::Mul(x, s.derivative), rise, s.value)};
}

template <class X, class Y, class F>
HWY_INLINE void gelu_lanes(const X* x, Y* y, Y* slope, int64_t n, const F& f) {
  if (slope == nullptr) {
    for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(f(lanes.load(x + i)).y, y + i); });
  } else {
    for_lanes(n, [&](auto lanes, int64_t i) {
      const Gelu result = f(lanes.load(x + i));
      lanes.store(result.y, y + i);
      lanes.store(result.slope, slope + i);
    });
  }
}

template <class X, class Y>
void gelu_simd(const X* x, Y* y, Y* slope, int64_t n, bool tanh_form) {
  if (tanh_form) {
    gelu_lanes(x, y, slope, n, [](V v) { return gelu_tanh(v); });
  } else {
    gelu_lanes(x, y, slope, n, [](V v) { return gelu_exact(v); });
  }
}

template <class X, class Y, class F>
HWY_INLINE void gelu_backward_lanes(const X* x, const Y* dy, Y* dx, int64_t n, const F& f) {
  for_lanes(n, [&](auto lanes, int64_t i) {
    const V slope = as_stored<Y>(f(lanes.load(x + i)).slope);
    lanes.store(hn::Mul(lanes.load(dy + i), slope), dx + i);
  });
}

template <class X, class Y>
void gelu_backward_simd(const X* x, const Y* dy, Y* dx, int64_t n, bool tanh_form) {
  if (tanh_form) {
    gelu_backward_lanes(x, dy, dx, n, [](V v) { return gelu_tanh(v); });
  } else {
    gelu_backward_lanes(x, dy, dx, n, [](V v) { return gelu_exact(v); });
  }
}

template <class X, class Y>
GeluFunctions<X, Y> gelu_functions() {
  return {&gelu_simd<X, Y>, &gelu_backward_simd<X, Y>};
}

MixedTable<GeluFunctions> gelu_table() {
  return {gelu_functions<float, float>(), gelu_functions<float, bfloat16>(),
          gelu_functions<bfloat16, bfloat16>()};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(gelu_table);

namespace {

template <class X, class Y>
GeluFunctions<X, Y> functions() {
  if constexpr (!std::is_same_v<X, double>) {
    if (active_tier() != Tier::kRef) {
      return HWY_DYNAMIC_DISPATCH(gelu_table)();
    }
  }
  return {&ref::gelu<X, Y>, &ref::gelu_backward<X, Y>};
}

// gelu of every bfloat16, in the order of their bits: 128 kB, of which numbers of usual sizes share
// a few. Looking one up takes 0.4 ns, computing it 0.7 (AMD EPYC, Zen 4, 2026-11-30).
class Values {
 public:
  Values(const GeluFunctions<bfloat16, bfloat16>& f, bool tanh_form) : y_(kCount) {
    std::vector<bfloat16> x(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      x[i].bits = static_cast<uint16_t>(i);
    }
    f.forward(x.data(), y_.data(), nullptr, kCount, tanh_form);
  }
  void look_up(const bfloat16* x, bfloat16* y, int64_t n) const {
    const bfloat16* const values = y_.data();
    for (int64_t i = 0; i < n; ++i) {
      y[i] = values[x[i].bits];
    }
  }

 private:
  static constexpr size_t kCount = 1 << 16;
  std::vector<bfloat16> y_;
};

}  // namespace

template <class X, class Y>
void gelu(const X* x, Y* y, Y* slope, int64_t n, bool tanh_form) {
  const auto f = functions<X, Y>();
  if constexpr (std::is_same_v<X, bfloat16>) {
    if (slope == nullptr) {
      static const Values exact(f, false), tanh(f, true);
      const Values& values = tanh_form ? tanh : exact;
      parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
        values.look_up(x + begin, y + begin, end - begin);
      });
      return;
    }
  }
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    f.forward(x + begin, y + begin, slope == nullptr ? slope : slope + begin, end - begin,
              tanh_form);
  });
}

template <class X, class Y>
void gelu_backward(const X* x, const Y* dy, Y* dx, int64_t n, bool tanh_form) {
  const auto f = functions<X, Y>();
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    f.backward(x + begin, dy + begin, dx + begin, end - begin, tanh_form);
  });
}

template void gelu(const float*, float*, float*, int64_t, bool);
template void gelu(const float*, bfloat16*, bfloat16*, int64_t, bool);
template void gelu(const bfloat16*, bfloat16*, bfloat16*, int64_t, bool);
template void gelu(const double*, double*, double*, int64_t, bool);
template void gelu_backward(const float*, const float*, float*, int64_t, bool);
template void gelu_backward(const float*, const bfloat16*, bfloat16*, int64_t, bool);
template void gelu_backward(const bfloat16*, const bfloat16*, bfloat16*, int64_t, bool);
template void gelu_backward(const double*, const double*, double*, int64_t, bool);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
