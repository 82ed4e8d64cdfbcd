// The plain loops of cross_entropy.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/softmax_ref.h"

namespace chargrad::kernels::ref {

// log sum_j exp(x_j).
template <class S>
double log_sum_exp(const S* x, int64_t n) {
  const S max = row_max(x, n);
  return static_cast<double>(max) + std::log(row_exp_sum(x, n, max));
}

// Writes lse; `loss` is the sum over the rows, not yet the mean.
template <class S>
CrossEntropy cross_entropy_forward(const S* x, const int64_t* target, int64_t rows, int64_t V,
                                   int64_t ignore_index, double* lse) {
  CrossEntropy sum{0, 0};
  for (int64_t i = 0; i < rows; ++i, x += V) {
    lse[i] = 0;
    if (target[i] != ignore_index) {
      lse[i] = log_sum_exp(x, V);
      sum.loss += lse[i] - static_cast<double>(x[target[i]]);
      ++sum.count;
    }
  }
  return sum;
}

template <class S>
void cross_entropy_backward(const S* x, const int64_t* target, const double* lse, int64_t rows,
                            int64_t V, int64_t ignore_index, double scale, S* dx) {
  for (int64_t i = 0; i < rows; ++i, x += V, dx += V) {
    for (int64_t j = 0; j < V; ++j) {
      const double p = std::exp(static_cast<double>(x[j]) - lse[i]);
      const double one_hot = j == target[i] ? 1 : 0;
      dx[j] = target[i] == ignore_index ? S(0) : static_cast<S>((p - one_hot) * scale);
    }
  }
}

}  // namespace chargrad::kernels::ref
