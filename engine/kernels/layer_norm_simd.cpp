// layer_norm.h over float in Highway vectors, and the entry that picks between it and the plain
// loops.
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

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/layer_norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

void layer_norm_forward_simd(const float* x, const float* weight, const float* bias, double eps,
                             int64_t rows, int64_t cols, float* y, float* mean, float* rstd) {
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

// g = dy weight.
template <class Lanes>
HWY_INLINE V weighted(Lanes lanes, const float* dy, const float* weight, int64_t i) {
  const V g = lanes.load(dy + i);
  return weight == nullptr ? g : hn::Mul(g, lanes.load(weight + i));
}

// Adds to dweight and dbias, which the caller has cleared: a piece of the rows at a time.
void layer_norm_backward_simd(const float* x, const float* weight, const float* mean,
                              const float* rstd, const float* dy, int64_t rows, int64_t cols,
                              float* dx, float* dweight, float* dbias) {
  const D d;
  const auto n = static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, dy += cols) {
    const V m = hn::Set(d, mean[row]);
    const V r = hn::Set(d, rstd[row]);
    if (dweight != nullptr) {
      for_lanes(cols, [&](auto lanes, int64_t i) {
        const V h = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
        lanes.store(hn::MulAdd(lanes.load(dy + i), h, lanes.load(dweight + i)), dweight + i);
      });
    }
    if (dbias != nullptr) {
      for_lanes(cols, [&](auto lanes, int64_t i) {
        lanes.store(hn::Add(lanes.load(dy + i), lanes.load(dbias + i)), dbias + i);
      });
    }
    if (dx == nullptr) {
      continue;
    }
    const double mean_g =
        sum_lanes(cols, [&](auto lanes, int64_t i) { return weighted(lanes, dy, weight, i); }) / n;
    const double mean_gh = sum_lanes(cols,
                                     [&](auto lanes, int64_t i) {
                                       const V h = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
                                       return hn::Mul(weighted(lanes, dy, weight, i), h);
                                     }) /
                           n;
    const V a = hn::Set(d, static_cast<float>(mean_g));
    const V b = hn::Set(d, static_cast<float>(mean_gh));
    for_lanes(cols, [&](auto lanes, int64_t i) {
      const V h = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
      const V g = hn::Sub(weighted(lanes, dy, weight, i), a);
      lanes.store(hn::Mul(r, hn::NegMulAdd(h, b, g)), dx + i);
    });
    dx += cols;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(layer_norm_forward_simd);
HWY_EXPORT(layer_norm_backward_simd);

namespace {

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

template <class S>
void layer_norm_forward(const S* x, const S* weight, const S* bias, double eps, int64_t rows,
                        int64_t cols, S* y, S* mean, S* rstd) {
  parallel_chunks(rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(layer_norm_forward_simd)
        (x + at, weight, bias, eps, end - begin, cols, y + at, mean + begin, rstd + begin);
        return;
      }
    }
    ref::layer_norm_forward(x + at, weight, bias, eps, end - begin, cols, y + at, mean + begin,
                            rstd + begin);
  });
}

template <class S>
void layer_norm_backward(const S* x, const S* weight, const S* mean, const S* rstd, const S* dy,
                         int64_t rows, int64_t cols, S* dx, S* dweight, S* dbias) {
  const int64_t chunk = std::max(chunk_rows(cols), (rows + kMaxParts - 1) / kMaxParts);
  const int64_t parts = (rows + chunk - 1) / chunk;
  std::vector<S> dweight_parts(static_cast<size_t>(dweight != nullptr ? parts * cols : 0));
  std::vector<S> dbias_parts(static_cast<size_t>(dbias != nullptr ? parts * cols : 0));
  parallel_chunks(rows, chunk, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    const int64_t part = begin / chunk * cols;
    S* to = dx != nullptr ? dx + at : nullptr;
    S* dw = dweight != nullptr ? dweight_parts.data() + part : nullptr;
    S* db = dbias != nullptr ? dbias_parts.data() + part : nullptr;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(layer_norm_backward_simd)
        (x + at, weight, mean + begin, rstd + begin, dy + at, end - begin, cols, to, dw, db);
        return;
      }
    }
    ref::layer_norm_backward(x + at, weight, mean + begin, rstd + begin, dy + at, end - begin, cols,
                             to, dw, db);
  });
  if (dweight != nullptr) {
    add_parts(dweight_parts, parts, cols, dweight);
  }
  if (dbias != nullptr) {
    add_parts(dbias_parts, parts, cols, dbias);
  }
}

template void layer_norm_forward<float>(const float*, const float*, const float*, double, int64_t,
                                        int64_t, float*, float*, float*);
template void layer_norm_forward<double>(const double*, const double*, const double*, double,
                                         int64_t, int64_t, double*, double*, double*);
template void layer_norm_backward<float>(const float*, const float*, const float*, const float*,
                                         const float*, int64_t, int64_t, float*, float*, float*);
template void layer_norm_backward<double>(const double*, const double*, const double*,
                                          const double*, const double*, int64_t, int64_t, double*,
                                          double*, double*);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
