// unary.h over float in Highway vectors, and the entry that picks between it and the plain loops.
#include <cstdint>
#include <type_traits>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/unary.h"
#include "engine/kernels/unary_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/unary_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"
#include "engine/kernels/math_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

template <class F>
HWY_INLINE void map(const float* x, float* y, int64_t n, const F& f) {
  for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(f(lanes.load(x + i)), y + i); });
}

template <class F>
HWY_INLINE void map(const float* a, const float* b, float* y, int64_t n, const F& f) {
  for_lanes(n, [&](auto lanes, int64_t i) {
    lanes.store(f(lanes.load(a + i), lanes.load(b + i)), y + i);
  });
}

void unary_forward_simd(Unary f, const float* x, float* y, int64_t n) {
  const D d;
  switch (f) {
    case Unary::kExp:
      return map(x, y, n, [d](V v) { return vec_exp(d, v); });
    case Unary::kLog:
      return map(x, y, n, [d](V v) { return vec_log(d, v); });
    case Unary::kSqrt:
      return map(x, y, n, [](V v) { return hn::Sqrt(v); });
    case Unary::kTanh:
      return map(x, y, n, [d](V v) { return vec_tanh(d, v); });
    case Unary::kSigmoid:
      return map(x, y, n, [d](V v) { return vec_sigmoid(d, v).value; });
    case Unary::kRelu:  // By comparison, as Max need not let a NaN through.
      return map(x, y, n,
                 [d](V v) { return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Zero(d), v); });
  }
}

void unary_backward_simd(Unary f, const float* saved, const float* dy, float* dx, int64_t n) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  switch (f) {
    case Unary::kExp:
      return map(saved, dy, dx, n, [](V y, V g) { return hn::Mul(y, g); });
    case Unary::kLog:
      return map(saved, dy, dx, n, [](V x, V g) { return hn::Div(g, x); });
    case Unary::kSqrt:
      return map(saved, dy, dx, n, [](V y, V g) { return hn::Div(g, hn::Add(y, y)); });
    case Unary::kTanh:
      return map(saved, dy, dx, n,
                 [one](V y, V g) { return hn::Mul(hn::NegMulAdd(y, y, one), g); });
    case Unary::kSigmoid:
      return map(saved, dy, dx, n,
                 [one](V y, V g) { return hn::Mul(hn::Mul(y, hn::Sub(one, y)), g); });
    case Unary::kRelu:
      return map(saved, dy, dx, n,
                 [d](V y, V g) { return hn::IfThenElse(hn::Le(y, hn::Zero(d)), hn::Zero(d), g); });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(unary_forward_simd);
HWY_EXPORT(unary_backward_simd);

template <class S>
void unary_forward(Unary f, const S* x, S* y, int64_t n) {
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(unary_forward_simd)(f, x + begin, y + begin, end - begin);
        return;
      }
    }
    ref::unary_forward(f, x + begin, y + begin, end - begin);
  });
}

template <class S>
void unary_backward(Unary f, const S* saved, const S* dy, S* dx, int64_t n) {
  parallel_chunks(n, kChunkElements, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(unary_backward_simd)
        (f, saved + begin, dy + begin, dx + begin, end - begin);
        return;
      }
    }
    ref::unary_backward(f, saved + begin, dy + begin, dx + begin, end - begin);
  });
}

template void unary_forward<float>(Unary, const float*, float*, int64_t);
template void unary_forward<double>(Unary, const double*, double*, int64_t);
template void unary_backward<float>(Unary, const float*, const float*, float*, int64_t);
template void unary_backward<double>(Unary, const double*, const double*, double*, int64_t);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
