// layer_norm.h over float and bfloat16 in Highway vectors, and the entry that picks between it and
// the plain loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/layer_norm.h"
#include "engine/kernels/layer_norm_ref.h"
#include "engine/kernels/mixed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/layer_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

template <class X, class Y>
void layer_norm_forward_simd(const X* x, const float* weight, const float* bias, double eps,
                             int64_t rows, int64_t cols, Y* y, float* mean, float* rstd) {
  const D d;
  const auto n = static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    mean[row] = static_cast<float>(
        sum_lanes(cols, [&](auto lanes, int64_t i) { return lanes.load(x + i); }) / n);
    const V m = hn::Set(d, mean[row]);
    const double var = sum_lanes(cols,
                                 [&](auto lanes, int64_t i) {
                                   const V centred = hn::Sub(lanes.load(x + i), m);
                                   return hn::Mul(centred, centred);
                                 }) /
                       n;
    rstd[row] = static_cast<float>(1 / std::sqrt(var + eps));
    const V r = hn::Set(d, rstd[row]);
    for_lanes(cols, [&](auto lanes, int64_t i) {
      V h = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
      if (weight != nullptr) {
        h = hn::Mul(h, lanes.load(weight + i));
      }
      if (bias != nullptr) {
        h = hn::Add(h, lanes.load(bias + i));
      }
      lanes.store(h, y + i);
    });
  }
}

template <class Lanes>
HWY_INLINE V weighted(Lanes lanes, V dy, const float* weight, int64_t i) {
  return weight == nullptr ? dy : hn::Mul(dy, lanes.load(weight + i));
}

// The means over a row of g and of g h.
struct RowMeans {
  double g = 0, gh = 0;
};

// One pass over a row: its means, and dy h and dy added to dweight and dbias. Four rows side by
// side spare loads of those but read memory in eight streams: no faster in cache (22 us for 768
// rows of 128), half as slow again within a training step (AMD EPYC, Zen 4, 2026-11-29).
template <class X, class Y>
HWY_INLINE RowMeans backward_sums(const X* x, const float* weight, V mean, V rstd, const Y* dy,
                                  int64_t cols, float* dweight, float* dbias) {
  const D d;
  RowMeans means;
  for (int64_t begin = 0; begin < cols; begin += kSumBlock) {
    V sum_g = hn::Zero(d), sum_gh = hn::Zero(d);
    for_lanes(HWY_MIN(kSumBlock, cols - begin), [&](auto lanes, int64_t offset) {
      const int64_t i = begin + offset;
      const V up = lanes.load(dy + i);
      const V h = lanes.select(hn::Mul(hn::Sub(lanes.load(x + i), mean), rstd), hn::Zero(d));
      const V g = weighted(lanes, up, weight, i);
      sum_g = hn::Add(sum_g, g);
      sum_gh = hn::MulAdd(g, h, sum_gh);
      if (dweight != nullptr) {
        lanes.store(hn::MulAdd(up, h, lanes.load(dweight + i)), dweight + i);
      }
      if (dbias != nullptr) {
        lanes.store(hn::Add(up, lanes.load(dbias + i)), dbias + i);
      }
    });
    means.g += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum_g)));
    means.gh += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum_gh)));
  }
  means.g /= static_cast<double>(cols);
  means.gh /= static_cast<double>(cols);
  return means;
}

template <class X, class Y>
void layer_norm_backward_simd(const X* x, const float* weight, const float* mean, const float* rstd,
                              const Y* dy, int64_t rows, int64_t cols, X* dx, float* dweight,
                              float* dbias) {
  const D d;
  for (int64_t row = 0; row < rows; ++row, x += cols, dy += cols) {
    const V m = hn::Set(d, mean[row]), r = hn::Set(d, rstd[row]);
    const RowMeans means = backward_sums(x, weight, m, r, dy, cols, dweight, dbias);
    if (dx == nullptr) {
      continue;
    }
    const V mean_g = hn::Set(d, static_cast<float>(means.g));
    const V mean_gh = hn::Set(d, static_cast<float>(means.gh));
    for_lanes(cols, [&](auto lanes, int64_t i) {
      const V h = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
      const V g = hn::Sub(weighted(lanes, lanes.load(dy + i), weight, i), mean_g);
      lanes.store(hn::Mul(r, hn::NegMulAdd(h, mean_gh, g)), dx + i);
    });
    dx += cols;
  }
}

template <class X, class Y>
HWY_INLINE LayerNormFunctions<X, Y> functions() {
  return {&layer_norm_forward_simd<X, Y>, &layer_norm_backward_simd<X, Y>};
}

MixedTable<LayerNormFunctions> layer_norm_table() {
  return {functions<float, float>(), functions<float, bfloat16>(), functions<bfloat16, bfloat16>()};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(layer_norm_table);

namespace {

template <class X, class Y>
LayerNormFunctions<X, Y> active_functions() {
  if constexpr (!std::is_same_v<X, double>) {
    if (active_tier() != Tier::kRef) {
      return HWY_DYNAMIC_DISPATCH(layer_norm_table)();
    }
  }
  return {&ref::layer_norm_forward<X, Y>, &ref::layer_norm_backward<X, Y>};
}

// Pieces of the rows that dweight and dbias are summed in; each costs two rows of memory.
constexpr int64_t kMaxParts = 64;

// out_j = sum of parts_pj over p, in order.
template <class S>
void add_parts(const std::vector<S>& parts, int64_t count, int64_t cols, S* out) {
  for (int64_t j = 0; j < cols; ++j) {
    double sum = 0;
    for (int64_t p = 0; p < count; ++p) {
      sum += parts[static_cast<size_t>(p * cols + j)];
    }
    out[j] = static_cast<S>(sum);
  }
}

}  // namespace

template <class X, class Y>
void layer_norm_forward(const X* x, const Wide<X>* weight, const Wide<X>* bias, double eps,
                        int64_t rows, int64_t cols, Y* y, Wide<X>* mean, Wide<X>* rstd) {
  const auto run = active_functions<X, Y>().forward;
  parallel_chunks(rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    run(x + at, weight, bias, eps, end - begin, cols, y + at, mean + begin, rstd + begin);
  });
}

template <class X, class Y>
void layer_norm_backward(const X* x, const Wide<X>* weight, const Wide<X>* mean,
                         const Wide<X>* rstd, const Y* dy, int64_t rows, int64_t cols, X* dx,
                         Wide<X>* dweight, Wide<X>* dbias) {
  const int64_t chunk = std::max(chunk_rows(cols), (rows + kMaxParts - 1) / kMaxParts);
  const int64_t parts = (rows + chunk - 1) / chunk;
  std::vector<Wide<X>> dweight_parts(static_cast<size_t>(dweight != nullptr ? parts * cols : 0));
  std::vector<Wide<X>> dbias_parts(static_cast<size_t>(dbias != nullptr ? parts * cols : 0));
  const auto run = active_functions<X, Y>().backward;
  parallel_chunks(rows, chunk, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    const int64_t part = begin / chunk * cols;
    run(x + at, weight, mean + begin, rstd + begin, dy + at, end - begin, cols,
        dx != nullptr ? dx + at : nullptr,
        dweight != nullptr ? dweight_parts.data() + part : nullptr,
        dbias != nullptr ? dbias_parts.data() + part : nullptr);
  });
  if (dweight != nullptr) {
    add_parts(dweight_parts, parts, cols, dweight);
  }
  if (dbias != nullptr) {
    add_parts(dbias_parts, parts, cols, dbias);
  }
}

// The element types that both are built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot stand in them.
#define LAYER_NORM(X, Y)                                                                      \
  template void layer_norm_forward(const X*, const Wide<X>*, const Wide<X>*, double, int64_t, \
                                   int64_t, Y*, Wide<X>*, Wide<X>*);                          \
  template void layer_norm_backward(const X*, const Wide<X>*, const Wide<X>*, const Wide<X>*, \
                                    const Y*, int64_t, int64_t, X*, Wide<X>*, Wide<X>*);
LAYER_NORM(float, float)
LAYER_NORM(float, bfloat16)
LAYER_NORM(bfloat16, bfloat16)
LAYER_NORM(double, double)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
