// cross_entropy.h over float in Highway vectors, and the entry that picks between it and the plain
// loops.
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/cross_entropy_ref.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cross_entropy_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"
#include "engine/kernels/math_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

// Writes lse; `loss` is the sum over the rows, not yet the mean.
CrossEntropy cross_entropy_forward_simd(const float* x, const int64_t* target, int64_t rows,
                                        int64_t vocab, int64_t ignore_index, double* lse) {
  const D d;
  CrossEntropy total{0, 0};
  for (int64_t row = 0; row < rows; ++row, x += vocab) {
    lse[row] = 0;
    if (target[row] == ignore_index) {
      continue;
    }
    const float max = max_lanes(x, vocab);
    const V shift = hn::Set(d, max);
    const double sum = sum_lanes(vocab, [&](auto lanes, int64_t i) {
      return vec_exp(d, hn::Sub(lanes.load(x + i), shift));
    });
    lse[row] = static_cast<double>(max) + std::log(sum);
    total.loss += lse[row] - static_cast<double>(x[target[row]]);
    ++total.count;
  }
  return total;
}

void cross_entropy_backward_simd(const float* x, const int64_t* target, const double* lse,
                                 int64_t rows, int64_t vocab, int64_t ignore_index, float scale,
                                 float* dx) {
  const D d;
  for (int64_t row = 0; row < rows; ++row, x += vocab, dx += vocab) {
    if (target[row] == ignore_index) {
      for_lanes(vocab, [&](auto lanes, int64_t i) { lanes.store(hn::Zero(d), dx + i); });
      continue;
    }
    // lse as a sum of two floats: x - high has at most one rounding, of the size of x - lse.
    const auto high = static_cast<float>(lse[row]);
    const V shift = hn::Set(d, high);
    const V rest = hn::Set(d, static_cast<float>(lse[row] - static_cast<double>(high)));
    const V factor = hn::Set(d, scale);
    for_lanes(vocab, [&](auto lanes, int64_t i) {
      const V p = vec_exp(d, hn::Sub(hn::Sub(lanes.load(x + i), shift), rest));
      lanes.store(hn::Mul(p, factor), dx + i);
    });
    dx[target[row]] -= scale;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(cross_entropy_forward_simd);
HWY_EXPORT(cross_entropy_backward_simd);

template <class S>
CrossEntropy cross_entropy_forward(const S* x, const int64_t* target, int64_t rows, int64_t V,
                                   int64_t ignore_index, double* lse) {
  const int64_t chunk = chunk_rows(V);
  std::vector<CrossEntropy> parts(static_cast<size_t>((rows + chunk - 1) / chunk));
  parallel_chunks(rows, chunk, [&](int64_t begin, int64_t end) {
    CrossEntropy& part = parts[static_cast<size_t>(begin / chunk)];
    const S* from = x + begin * V;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        part = HWY_DYNAMIC_DISPATCH(cross_entropy_forward_simd)(from, target + begin, end - begin,
                                                                V, ignore_index, lse + begin);
        return;
      }
    }
    part =
        ref::cross_entropy_forward(from, target + begin, end - begin, V, ignore_index, lse + begin);
  });
  CrossEntropy total{0, 0};
  for (const CrossEntropy& part : parts) {
    total.loss += part.loss;
    total.count += part.count;
  }
  total.loss /= static_cast<double>(total.count);
  return total;
}

template <class S>
void cross_entropy_backward(const S* x, const int64_t* target, const double* lse, int64_t rows,
                            int64_t V, int64_t ignore_index, double scale, S* dx) {
  parallel_chunks(rows, chunk_rows(V), [&](int64_t begin, int64_t end) {
    const S* from = x + begin * V;
    S* to = dx + begin * V;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(cross_entropy_backward_simd)
        (from, target + begin, lse + begin, end - begin, V, ignore_index, static_cast<float>(scale),
         to);
        return;
      }
    }
    ref::cross_entropy_backward(from, target + begin, lse + begin, end - begin, V, ignore_index,
                                scale, to);
  });
}

template CrossEntropy cross_entropy_forward<float>(const float*, const int64_t*, int64_t, int64_t,
                                                   int64_t, double*);
template CrossEntropy cross_entropy_forward<double>(const double*, const int64_t*, int64_t, int64_t,
                                                    int64_t, double*);
template void cross_entropy_backward<float>(const float*, const int64_t*, const double*, int64_t,
                                            int64_t, int64_t, double, float*);
template void cross_entropy_backward<double>(const double*, const int64_t*, const double*, int64_t,
                                             int64_t, int64_t, double, double*);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
