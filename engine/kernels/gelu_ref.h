// The plain loops of gelu.h.
#pragma once

#include <cmath>
#include <cstdint>

namespace chargrad::kernels::ref {

inline constexpr double kGeluCubic = 0.044715;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which does not cancel where tanh(u) nears -1.
inline double gelu_tanh_phi(double x) {
  return 1 / (1 + std::exp(-2 * kSqrt2OverPi * (x + kGeluCubic * x * x * x)));
}

template <class X, class Y>
void gelu(const X* x, Y* y, Y* slope, int64_t n, bool tanh_form) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double phi = tanh_form ? gelu_tanh_phi(v) : 0.5 * std::erfc(-v * kSqrtHalf);
    y[i] = static_cast<Y>(v * phi);
    if (slope != nullptr) {
      const double density = tanh_form
                                 ? phi * (1 - phi) * 2 * kSqrt2OverPi * (1 + 3 * kGeluCubic * v * v)
                                 : kInvSqrt2Pi * std::exp(-0.5 * v * v);
      slope[i] = static_cast<Y>(phi + v * density);
    }
  }
}

}  // namespace chargrad::kernels::ref
