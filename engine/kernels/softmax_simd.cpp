// softmax.h over float in Highway vectors, and the entry that picks between it and the plain
// loops. A row is read twice from the cache: for its maximum, then for exponentials and their sum.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/softmax.h"
#include "engine/kernels/softmax_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/softmax_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"
#include "engine/kernels/math_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

void softmax_forward_simd(const float* x, float* y, int64_t rows, int64_t cols,
                          EmptyRow empty_row) {
  const D d;
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float max = max_lanes(x, cols);
    if (empty_row == EmptyRow::kZero && max == -INFINITY) {
      max = 0;  // exp(-inf) = 0 instead of exp(-inf + inf) = NaN.
    }
    const V shift = hn::Set(d, max);
    const double sum = sum_lanes(cols, [&](auto lanes, int64_t i) {
      const V e = vec_exp(d, hn::Sub(lanes.load(x + i), shift));
      lanes.store(e, y + i);
      return e;
    });
    const V scale = hn::Set(d, sum == 0 ? 0.0f : static_cast<float>(1 / sum));
    for_lanes(cols, [&](auto lanes, int64_t i) {
      lanes.store(hn::Mul(lanes.load(y + i), scale), y + i);
    });
  }
}

void softmax_backward_simd(const float* y, const float* dy, float* dx, int64_t rows, int64_t cols) {
  const D d;
  for (int64_t row = 0; row < rows; ++row, y += cols, dy += cols, dx += cols) {
    const V dot = hn::Set(d, static_cast<float>(sum_lanes(cols, [&](auto lanes, int64_t i) {
                            return hn::Mul(lanes.load(y + i), lanes.load(dy + i));
                          })));
    for_lanes(cols, [&](auto lanes, int64_t i) {
      lanes.store(hn::Mul(lanes.load(y + i), hn::Sub(lanes.load(dy + i), dot)), dx + i);
    });
  }
}

void log_softmax_forward_simd(const float* x, float* y, int64_t rows, int64_t cols) {
  const D d;
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    const V shift = hn::Set(d, max_lanes(x, cols));
    const double sum = sum_lanes(
        cols, [&](auto lanes, int64_t i) { return vec_exp(d, hn::Sub(lanes.load(x + i), shift)); });
    const V log_sum = hn::Set(d, static_cast<float>(std::log(sum)));
    for_lanes(cols, [&](auto lanes, int64_t i) {
      lanes.store(hn::Sub(hn::Sub(lanes.load(x + i), shift), log_sum), y + i);
    });
  }
}

void log_softmax_backward_simd(const float* y, const float* dy, float* dx, int64_t rows,
                               int64_t cols) {
  const D d;
  for (int64_t row = 0; row < rows; ++row, y += cols, dy += cols, dx += cols) {
    const V sum = hn::Set(d, static_cast<float>(sum_lanes(
                                 cols, [&](auto lanes, int64_t i) { return lanes.load(dy + i); })));
    for_lanes(cols, [&](auto lanes, int64_t i) {
      const V p = vec_exp(d, lanes.load(y + i));
      lanes.store(hn::NegMulAdd(p, sum, lanes.load(dy + i)), dx + i);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(softmax_forward_simd);
HWY_EXPORT(softmax_backward_simd);
HWY_EXPORT(log_softmax_forward_simd);
HWY_EXPORT(log_softmax_backward_simd);

template <class S>
void softmax_forward(const S* x, S* y, int64_t rows, int64_t cols, EmptyRow empty_row) {
  parallel_chunks(rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    const S* from = x + begin * cols;
    S* to = y + begin * cols;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(softmax_forward_simd)(from, to, end - begin, cols, empty_row);
        return;
      }
    }
    ref::softmax_forward(from, to, end - begin, cols, empty_row);
  });
}

template <class S>
void softmax_backward(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols) {
  parallel_chunks(rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(softmax_backward_simd)(y + at, dy + at, dx + at, end - begin, cols);
        return;
      }
    }
    ref::softmax_backward(y + at, dy + at, dx + at, end - begin, cols);
  });
}

template <class S>
void log_softmax_forward(const S* x, S* y, int64_t rows, int64_t cols) {
  parallel_chunks(rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(log_softmax_forward_simd)(x + at, y + at, end - begin, cols);
        return;
      }
    }
    ref::log_softmax_forward(x + at, y + at, end - begin, cols);
  });
}

template <class S>
void log_softmax_backward(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols) {
  parallel_chunks(rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * cols;
    if constexpr (std::is_same_v<S, float>) {
      if (active_tier() != Tier::kRef) {
        HWY_DYNAMIC_DISPATCH(log_softmax_backward_simd)
        (y + at, dy + at, dx + at, end - begin, cols);
        return;
      }
    }
    ref::log_softmax_backward(y + at, dy + at, dx + at, end - begin, cols);
  });
}

template void softmax_forward<float>(const float*, float*, int64_t, int64_t, EmptyRow);
template void softmax_forward<double>(const double*, double*, int64_t, int64_t, EmptyRow);
template void softmax_backward<float>(const float*, const float*, float*, int64_t, int64_t);
template void softmax_backward<double>(const double*, const double*, double*, int64_t, int64_t);
template void log_softmax_forward<float>(const float*, float*, int64_t, int64_t);
template void log_softmax_forward<double>(const double*, double*, int64_t, int64_t);
template void log_softmax_backward<float>(const float*, const float*, float*, int64_t, int64_t);
template void log_softmax_backward<double>(const double*, const double*, double*, int64_t, int64_t);

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
