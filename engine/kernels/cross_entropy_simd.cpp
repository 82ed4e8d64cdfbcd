// cross_entropy.h over float and bfloat16 in Highway vectors, and the entry that picks between it
// and the plain loops.
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/cross_entropy_ref.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/mixed.h"

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
template <class S>
CrossEntropy cross_entropy_forward_simd(const S* x, const int64_t* target, int64_t rows,
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
    total.loss += lse[row] - static_cast<double>(hn::GetLane(set(x[target[row]])));
    ++total.count;
  }
  return total;
}

template <class S>
void cross_entropy_backward_simd(const S* x, const int64_t* target, const double* lse, int64_t rows,
                                 int64_t vocab, int64_t ignore_index, double scale, S* dx) {
  const D d;
  const V factor = hn::Set(d, static_cast<float>(scale));
  const FirstLanes one(1);
  for (int64_t row = 0; row < rows; ++row, x += vocab, dx += vocab) {
    if (target[row] == ignore_index) {
      for_lanes(vocab, [&](auto lanes, int64_t i) { lanes.store(hn::Zero(d), dx + i); });
      continue;
    }
    // lse as a sum of two floats: x - high has at most one rounding, of the size of x - lse.
    const auto high = static_cast<float>(lse[row]);
    const V shift = hn::Set(d, high);
    const V rest = hn::Set(d, static_cast<float>(lse[row] - static_cast<double>(high)));
    const auto probability = [&](V v) { return vec_exp(d, hn::Sub(hn::Sub(v, shift), rest)); };
    const V of_target = probability(one.load(x + target[row]));
    for_lanes(vocab, [&](auto lanes, int64_t i) {
      lanes.store(hn::Mul(probability(lanes.load(x + i)), factor), dx + i);
    });
    one.store(hn::Mul(hn::Sub(of_target, hn::Set(d, 1.0f)), factor), dx + target[row]);
  }
}

template <class S>
HWY_INLINE CrossEntropyFunctions<S> functions() {
  return {&cross_entropy_forward_simd<S>, &cross_entropy_backward_simd<S>};
}

FloatTable<CrossEntropyFunctions> cross_entropy_table() {
  return {functions<float>(), functions<bfloat16>()};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(cross_entropy_table);

namespace {

template <class S>
CrossEntropyFunctions<S> active_functions() {
  if constexpr (!std::is_same_v<S, double>) {
    if (active_tier() != Tier::kRef) {
      return HWY_DYNAMIC_DISPATCH(cross_entropy_table)();
    }
  }
  return {&ref::cross_entropy_forward<S>, &ref::cross_entropy_backward<S>};
}

}  // namespace

template <class S>
CrossEntropy cross_entropy_forward(const S* x, const int64_t* target, int64_t rows, int64_t V,
                                   int64_t ignore_index, double* lse) {
  const auto run = active_functions<S>().forward;
  const int64_t chunk = chunk_rows(V);
  std::vector<CrossEntropy> parts(static_cast<size_t>((rows + chunk - 1) / chunk));
  parallel_chunks(rows, chunk, [&](int64_t begin, int64_t end) {
    parts[static_cast<size_t>(begin / chunk)] =
        run(x + begin * V, target + begin, end - begin, V, ignore_index, lse + begin);
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
  const auto run = active_functions<S>().backward;
  parallel_chunks(rows, chunk_rows(V), [&](int64_t begin, int64_t end) {
    run(x + begin * V, target + begin, lse + begin, end - begin, V, ignore_index, scale,
        dx + begin * V);
  });
}

// The element types that both are built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot stand in them.
#define CROSS_ENTROPY(S)                                                                           \
  template CrossEntropy cross_entropy_forward(const S*, const int64_t*, int64_t, int64_t, int64_t, \
                                              double*);                                            \
  template void cross_entropy_backward(const S*, const int64_t*, const double*, int64_t, int64_t,  \
                                       int64_t, double, S*);
CROSS_ENTROPY(float)
CROSS_ENTROPY(bfloat16)
CROSS_ENTROPY(double)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
