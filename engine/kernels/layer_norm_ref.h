// The plain loops of layer_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

namespace chargrad::kernels::ref {

template <class S>
void layer_norm_forward(const S* x, const S* weight, const S* bias, double eps, int64_t rows,
                        int64_t cols, S* y, S* mean, S* rstd) {
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
      y[j] = static_cast<S>((x[j] - m) * r * w + b);
    }
    mean[i] = static_cast<S>(m);
    rstd[i] = static_cast<S>(r);
  }
}

// Adds to dweight and dbias, which the caller has cleared: a piece of the rows at a time.
template <class S>
void layer_norm_backward(const S* x, const S* weight, const S* mean, const S* rstd, const S* dy,
                         int64_t rows, int64_t cols, S* dx, S* dweight, S* dbias) {
  for (int64_t i = 0; i < rows; ++i, x += cols, dy += cols) {
    const double m = mean[i], r = rstd[i];
    double mean_g = 0, mean_gh = 0;
    for (int64_t j = 0; j < cols; ++j) {
      const double g = dy[j] * (weight != nullptr ? static_cast<double>(weight[j]) : 1.0);
      mean_g += g / static_cast<double>(cols);
      mean_gh += g * (x[j] - m) * r / static_cast<double>(cols);
    }
    for (int64_t j = 0; j < cols; ++j) {
      const double h = (x[j] - m) * r;
      const double g = dy[j] * (weight != nullptr ? static_cast<double>(weight[j]) : 1.0);
      if (dweight != nullptr) {
        dweight[j] += static_cast<S>(dy[j] * h);
      }
      if (dbias != nullptr) {
        dbias[j] += dy[j];
      }
      if (dx != nullptr) {
        dx[i * cols + j] = static_cast<S>(r * (g - mean_g - h * mean_gh));
      }
    }
  }
}

}  // namespace chargrad::kernels::ref
