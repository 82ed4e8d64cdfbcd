// attention_rows.h over float in Highway vectors, and the entry that picks between it and the
// plain loops.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/kernels/attention_ref.h"
#include "engine/kernels/attention_rows.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"
#include "engine/kernels/math_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

struct RowArgs {
  int64_t n;    // columns that take part
  int64_t end;  // zeros up to here
  float scale;
  const float* mask;  // or null
};

// Stores scale s + mask into s and returns its maximum, a NaN where there is one.
HWY_INLINE float scale_row(const RowArgs& row, float* s) {
  const D d;
  const V scale = hn::Set(d, row.scale);
  const V lowest = hn::Set(d, -INFINITY);
  V max = lowest;
  auto nans = hn::IsNaN(lowest);
  for_lanes(row.n, [&](auto lanes, int64_t j) {
    V x = hn::Mul(lanes.load(s + j), scale);
    if (row.mask != nullptr) {
      x = hn::Add(x, lanes.load(row.mask + j));
    }
    lanes.store(x, s + j);
    x = lanes.select(x, lowest);
    max = hn::Max(max, x);
    nans = hn::Or(nans, hn::IsNaN(x));
  });
  return hn::AllFalse(d, nans) ? hn::GetLane(hn::MaxOfLanes(d, max)) : NAN;
}

HWY_INLINE void zero_fill(float* s, int64_t from, int64_t to) {
  for_lanes(to - from, [&](auto lanes, int64_t j) { lanes.store(hn::Zero(D()), s + from + j); });
}

void weights_simd(const ScoreRows<float>& block, float* s, float* lse) {
  const D d;
  for (int64_t r = 0; r < block.rows; ++r, s += block.ld) {
    const RowArgs row{block.seen(r), block.cols, block.scale,
                      block.mask == nullptr ? nullptr : block.mask + r * block.mask_row};
    const float max = scale_row(row, s);
    if (max == -INFINITY) {
      zero_fill(s, 0, row.end);
      lse[r] = -INFINITY;
      continue;
    }
    const V shift = hn::Set(d, max);
    const double sum = sum_lanes(row.n, [&](auto lanes, int64_t j) {
      const V e = vec_exp(d, hn::Sub(lanes.load(s + j), shift));
      lanes.store(e, s + j);
      return e;
    });
    const V scale = hn::Set(d, static_cast<float>(1 / sum));
    for_lanes(row.n, [&](auto lanes, int64_t j) {
      lanes.store(hn::Mul(lanes.load(s + j), scale), s + j);
    });
    zero_fill(s, row.n, row.end);
    lse[r] = static_cast<float>(static_cast<double>(max) + std::log(sum));
  }
}

void weights_again_simd(const ScoreRows<float>& block, float* s, const float* lse) {
  const D d;
  const V scale = hn::Set(d, block.scale);
  for (int64_t r = 0; r < block.rows; ++r, s += block.ld) {
    const int64_t n = lse[r] == -INFINITY ? 0 : block.seen(r);
    const float* mask = block.mask == nullptr ? nullptr : block.mask + r * block.mask_row;
    const V shift = hn::Set(d, lse[r]);
    for_lanes(n, [&](auto lanes, int64_t j) {
      V x = hn::Mul(lanes.load(s + j), scale);
      if (mask != nullptr) {
        x = hn::Add(x, lanes.load(mask + j));
      }
      lanes.store(vec_exp(d, hn::Sub(x, shift)), s + j);
    });
    zero_fill(s, n, block.cols);
  }
}

void score_grad_simd(const ScoreRows<float>& block, const float* p, float* dp, const float* delta) {
  const D d;
  const V scale = hn::Set(d, block.scale);
  for (int64_t r = 0; r < block.rows; ++r, p += block.ld, dp += block.ld) {
    const int64_t n = block.seen(r);
    const V shift = hn::Set(d, delta[r]);
    for_lanes(n, [&](auto lanes, int64_t j) {
      const V scaled = hn::Mul(scale, lanes.load(p + j));
      lanes.store(hn::Mul(scaled, hn::Sub(lanes.load(dp + j), shift)), dp + j);
    });
    zero_fill(dp, n, block.cols);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(weights_simd);
HWY_EXPORT(weights_again_simd);
HWY_EXPORT(score_grad_simd);

template <class S>
void attention_weights(const ScoreRows<S>& block, S* s, S* lse) {
  if constexpr (std::is_same_v<S, float>) {
    if (active_tier() != Tier::kRef) {
      HWY_DYNAMIC_DISPATCH(weights_simd)(block, s, lse);
      return;
    }
  }
  ref::attention_weights(block, s, lse);
}

template <class S>
void attention_weights_again(const ScoreRows<S>& block, S* s, const S* lse) {
  if constexpr (std::is_same_v<S, float>) {
    if (active_tier() != Tier::kRef) {
      HWY_DYNAMIC_DISPATCH(weights_again_simd)(block, s, lse);
      return;
    }
  }
  ref::attention_weights_again(block, s, lse);
}

template <class S>
void attention_score_grad(const ScoreRows<S>& block, const S* p, S* dp, const S* delta) {
  if constexpr (std::is_same_v<S, float>) {
    if (active_tier() != Tier::kRef) {
      HWY_DYNAMIC_DISPATCH(score_grad_simd)(block, p, dp, delta);
      return;
    }
  }
  ref::attention_score_grad(block, p, dp, delta);
}

template void attention_weights<float>(const ScoreRows<float>&, float*, float*);
template void attention_weights<double>(const ScoreRows<double>&, double*, double*);
template void attention_weights_again<float>(const ScoreRows<float>&, float*, const float*);
template void attention_weights_again<double>(const ScoreRows<double>&, double*, const double*);
template void attention_score_grad<float>(const ScoreRows<float>&, const float*, float*,
                                          const float*);
template void attention_score_grad<double>(const ScoreRows<double>&, const double*, double*,
                                           const double*);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
