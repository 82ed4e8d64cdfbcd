// The plain loops of adamw.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/adamw.h"

namespace chargrad::kernels::ref {

// The constants of an update, computed in double and rounded once.
template <class S>
struct AdamWConstants {
  S grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, minus_step_size, sqrt_correction2,
      eps;

  explicit AdamWConstants(const AdamW& a)
      : grad_scale(static_cast<S>(a.grad_scale)),
        decay(static_cast<S>(1 - a.lr * a.weight_decay)),
        one_minus_beta1(static_cast<S>(1 - a.beta1)),
        beta2(static_cast<S>(a.beta2)),
        one_minus_beta2(static_cast<S>(1 - a.beta2)),
        minus_step_size(static_cast<S>(-a.lr / (1 - std::pow(a.beta1, a.step)))),
        sqrt_correction2(static_cast<S>(std::sqrt(1 - std::pow(a.beta2, a.step)))),
        eps(static_cast<S>(a.eps)) {}
};

template <class S>
void adamw_step(const AdamWConstants<S>& c, const S* g, S* p, S* m, S* v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const S grad = g[i] * c.grad_scale;
    m[i] = m[i] + c.one_minus_beta1 * (grad - m[i]);
    v[i] = v[i] * c.beta2 + c.one_minus_beta2 * grad * grad;
    const S denominator = std::sqrt(v[i]) / c.sqrt_correction2 + c.eps;
    p[i] = p[i] * c.decay + c.minus_step_size * m[i] / denominator;
  }
}

template <class S>
double sum_of_squares(const S* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

}  // namespace chargrad::kernels::ref
