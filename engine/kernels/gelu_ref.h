// The plain loops of gelu.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/dtype.h"

namespace chargrad::kernels::ref {

inline constexpr double kGeluCubic = 0.044715;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which does not cancel where tanh(u) nears -1.
inline double gelu_tanh_phi(double x) {
  return 1 / (1 + std::exp(-2 * kSqrt2OverPi * (x + kGeluCubic * x * x * x)));
}

inline double gelu_phi(double x, bool tanh_form) {
  return tanh_form ? gelu_tanh_phi(x) : 0.5 * std::erfc(-x * kSqrtHalf);
}

// Phi(x) + x Phi'(x).
inline double gelu_slope(double x, double phi, bool tanh_form) {
  const double density = tanh_form
                             ? phi * (1 - phi) * 2 * kSqrt2OverPi * (1 + 3 * kGeluCubic * x * x)
                             : kInvSqrt2Pi * std::exp(-0.5 * x * x);
  return phi + x * density;
}

template <class X, class Y>
void gelu(const X* x, Y* y, Y* slope, int64_t n, bool tanh_form) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double phi = gelu_phi(v, tanh_form);
    y[i] = static_cast<Y>(v * phi);
    if (slope != nullptr) {
      slope[i] = static_cast<Y>(gelu_slope(v, phi, tanh_form));
    }
  }
}

template <class X, class Y>
void gelu_backward(const X* x, const Y* dy, Y* dx, int64_t n, bool tanh_form) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    const auto slope = static_cast<Y>(gelu_slope(v, gelu_phi(v, tanh_form), tanh_form));
    dx[i] = static_cast<Y>(static_cast<Wide<Y>>(dy[i]) * static_cast<Wide<Y>>(slope));
  }
}

}  // namespace chargrad::kernels::ref
