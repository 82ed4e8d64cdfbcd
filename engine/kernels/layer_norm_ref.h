// The plain loops of layer_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/dtype.h"

namespace chargrad::kernels::ref {

template <class X, class Y>
void layer_norm_forward(const X* x, const Wide<X>* weight, const Wide<X>* bias, double eps,
                        int64_t rows, int64_t cols, Y* y, Wide<X>* mean, Wide<X>* rstd) {
  for (int64_t i = 0; i < rows; ++i, x += cols, y += cols) {
    double m = 0, var = 0;
    for (int64_t j = 0; j < cols; ++j) {
      m += x[j];
    }
    m /= static_cast<double>(cols);
    for (int64_t j = 0; j < cols; ++j) {
      var += (x[j] - m) * (x[j] - m);
    }
    const double r = 1 / std::sqrt(var / static_cast<double>(cols) + eps);
    for (int64_t j = 0; j < cols; ++j) {
      const double w = weight != nullptr ? weight[j] : 1;
      const double b = bias != nullptr ? bias[j] : 0;
      y[j] = static_cast<Y>((x[j] - m) * r * w + b);
    }
    mean[i] = static_cast<Wide<X>>(m);
    rstd[i] = static_cast<Wide<X>>(r);
  }
}

// Adds to dweight and dbias, which the caller has cleared: a piece of the rows at a time.
template <class X, class Y>
void layer_norm_backward(const X* x, const Wide<X>* weight, const Wide<X>* mean,
                         const Wide<X>* rstd, const Y* dy, int64_t rows, int64_t cols, X* dx,
                         Wide<X>* dweight, Wide<X>* dbias) {
  const auto n = static_cast<double>(cols);
  for (int64_t i = 0; i < rows; ++i, x += cols, dy += cols) {
    const double m = mean[i], r = rstd[i];
    const auto h = [=](int64_t j) { return (x[j] - m) * r; };
    const auto g = [=](int64_t j) {
      return dy[j] * (weight != nullptr ? static_cast<double>(weight[j]) : 1.0);
    };
    double mean_g = 0, mean_gh = 0;
    for (int64_t j = 0; j < cols; ++j) {
      mean_g += g(j) / n;
      mean_gh += g(j) * h(j) / n;
    }
    for (int64_t j = 0; j < cols; ++j) {
      if (dweight != nullptr) {
        dweight[j] += static_cast<Wide<X>>(dy[j] * h(j));
      }
      if (dbias != nullptr) {
        dbias[j] += static_cast<Wide<X>>(dy[j]);
      }
      if (dx != nullptr) {
        dx[i * cols + j] = static_cast<X>(r * (g(j) - mean_g - h(j) * mean_gh));
      }
    }
  }
}

}  // namespace chargrad::kernels::ref
