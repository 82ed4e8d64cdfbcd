// The plain loops of softmax.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/kernels/softmax.h"

namespace chargrad::kernels::ref {

// The largest of x[0, n), -inf for n = 0. A NaN may be passed over: whatever is then subtracted,
// it stays one in the sums.
template <class S>
S row_max(const S* x, int64_t n) {
  S m = static_cast<S>(-std::numeric_limits<double>::infinity());
  for (int64_t j = 0; j < n; ++j) {
    m = x[j] > m ? x[j] : m;
  }
  return m;
}

// sum_j exp(x_j - max).
template <class S>
double row_exp_sum(const S* x, int64_t n, S max) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    sum += std::exp(static_cast<double>(x[j]) - static_cast<double>(max));
  }
  return sum;
}

template <class S>
void softmax_forward(const S* x, S* y, int64_t rows, int64_t cols, EmptyRow empty_row) {
  for (int64_t i = 0; i < rows; ++i, x += cols, y += cols) {
    S max = row_max(x, cols);
    if (empty_row == EmptyRow::kZero && max == -std::numeric_limits<S>::infinity()) {
      max = 0;  // exp(-inf) = 0 instead of exp(-inf + inf) = NaN.
    }
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) {
      const double e = std::exp(static_cast<double>(x[j]) - static_cast<double>(max));
      y[j] = static_cast<S>(e);
      sum += e;
    }
    const double scale = sum == 0 ? 0 : 1 / sum;  // 0 for empty rows alone.
    for (int64_t j = 0; j < cols; ++j) {
      y[j] = static_cast<S>(y[j] * scale);
    }
  }
}

template <class S>
void softmax_backward(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i, y += cols, dy += cols, dx += cols) {
    double dot = 0;
    for (int64_t j = 0; j < cols; ++j) {
      dot += static_cast<double>(y[j]) * static_cast<double>(dy[j]);
    }
    for (int64_t j = 0; j < cols; ++j) {
      dx[j] = static_cast<S>(y[j] * (dy[j] - dot));
    }
  }
}

template <class S>
void log_softmax_forward(const S* x, S* y, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i, x += cols, y += cols) {
    const S max = row_max(x, cols);
    const double log_sum = std::log(row_exp_sum(x, cols, max));
    for (int64_t j = 0; j < cols; ++j) {
      y[j] = static_cast<S>((static_cast<double>(x[j]) - static_cast<double>(max)) - log_sum);
    }
  }
}

template <class S>
void log_softmax_backward(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i, y += cols, dy += cols, dx += cols) {
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) {
      sum += dy[j];
    }
    for (int64_t j = 0; j < cols; ++j) {
      dx[j] = static_cast<S>(dy[j] - std::exp(static_cast<double>(y[j])) * sum);
    }
  }
}

}  // namespace chargrad::kernels::ref
