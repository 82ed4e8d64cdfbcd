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

// What backward reads of one row.
template <class X, class Y>
struct Row {
  const X* x;
  const Y* dy;
  V mean, rstd;

  template <class Lanes>
  HWY_INLINE V h(Lanes lanes, int64_t i) const {
    return hn::Mul(hn::Sub(lanes.load(x + i), mean), rstd);
  }
};

template <class Lanes>
HWY_INLINE V weighted(Lanes lanes, V dy, const float* weight, int64_t i) {
  return weight == nullptr ? dy : hn::Mul(dy, lanes.load(weight + i));
}

// Rows whose sums are made together: dweight and dbias pass through registers once for all of
// them, and the chains of additions overlap. A row's own sums are the same for any number.
constexpr int kRowsAtOnce = 4;

// Adds dy h to dweight and dy to dbias; mean_g and mean_gh of each row.
template <int kRows, class X, class Y>
HWY_INLINE void backward_sums(const Row<X, Y>* row, const float* weight, int64_t cols,
                              float* dweight, float* dbias, double* mean_g, double* mean_gh) {
  const D d;
  for (int r = 0; r < kRows; ++r) {
    mean_g[r] = mean_gh[r] = 0;
  }
  for (int64_t begin = 0; begin < cols; begin += kSumBlock) {
    V sum_g[kRows], sum_gh[kRows];
    for (int r = 0; r < kRows; ++r) {
      sum_g[r] = sum_gh[r] = hn::Zero(d);
    }
    for_lanes(HWY_MIN(kSumBlock, cols - begin), [&](auto lanes, int64_t offset) {
      const int64_t i = begin + offset;
      V dw = dweight != nullptr ? lanes.load(dweight + i) : hn::Zero(d);
      V db = dbias != nullptr ? lanes.load(dbias + i) : hn::Zero(d);
      for (int r = 0; r < kRows; ++r) {
        const V dy = lanes.load(row[r].dy + i);
        const V h = lanes.select(row[r].h(lanes, i), hn::Zero(d));
        const V g = weighted(lanes, dy, weight, i);
        dw = hn::MulAdd(dy, h, dw);
        db = hn::Add(db, dy);
        sum_g[r] = hn::Add(sum_g[r], g);
        sum_gh[r] = hn::MulAdd(g, h, sum_gh[r]);
      }
      if (dweight != nullptr) {
        lanes.store(dw, dweight + i);
      }
      if (dbias != nullptr) {
        lanes.store(db, dbias + i);
      }
    });
    for (int r = 0; r < kRows; ++r) {
      mean_g[r] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum_g[r])));
      mean_gh[r] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum_gh[r])));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    mean_g[r] /= static_cast<double>(cols);
    mean_gh[r] /= static_cast<double>(cols);
  }
}

template <int kRows, class X, class Y>
HWY_INLINE void backward_rows(const X* x, const float* weight, const float* mean, const float* rstd,
                              const Y* dy, int64_t cols, X* dx, float* dweight, float* dbias) {
  const D d;
  Row<X, Y> row[kRows];
  for (int r = 0; r < kRows; ++r) {
    row[r] = {x + r * cols, dy + r * cols, hn::Set(d, mean[r]), hn::Set(d, rstd[r])};
  }
  double mean_g[kRows], mean_gh[kRows];
  backward_sums<kRows>(row, weight, cols, dweight, dbias, mean_g, mean_gh);
  if (dx == nullptr) {
    return;
  }
  for (int r = 0; r < kRows; ++r) {
    const V a = hn::Set(d, static_cast<float>(mean_g[r]));
    const V b = hn::Set(d, static_cast<float>(mean_gh[r]));
    X* const to = dx + r * cols;
    for_lanes(cols, [&](auto lanes, int64_t i) {
      const V g = weighted(lanes, lanes.load(row[r].dy + i), weight, i);
      const V centred = hn::NegMulAdd(row[r].h(lanes, i), b, hn::Sub(g, a));
      lanes.store(hn::Mul(row[r].rstd, centred), to + i);
    });
  }
}

template <class X, class Y>
void layer_norm_backward_simd(const X* x, const float* weight, const float* mean, const float* rstd,
                              const Y* dy, int64_t rows, int64_t cols, X* dx, float* dweight,
                              float* dbias) {
  int64_t row = 0;
  for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce) {
    const int64_t at = row * cols;
    backward_rows<kRowsAtOnce>(x + at, weight, mean + row, rstd + row, dy + at, cols,
                               dx != nullptr ? dx + at : nullptr, dweight, dbias);
  }
  for (; row < rows; ++row) {
    const int64_t at = row * cols;
    backward_rows<1>(x + at, weight, mean + row, rstd + row, dy + at, cols,
                     dx != nullptr ? dx + at : nullptr, dweight, dbias);
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
