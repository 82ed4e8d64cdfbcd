// Elementwise functions of one argument over contiguous arrays, and their derivatives.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

enum class Unary { kExp, kLog, kSqrt, kTanh, kSigmoid, kRelu };

// y_i = f(x_i). y may be x.
template <class S>
void unary_forward(Unary f, const S* x, S* y, int64_t n);

// dx_i = f'(x_i) dy_i, from the output y for exp, sqrt, tanh, sigmoid and relu and from the input
// x for log (see unary_saves_input). dx may be dy.
//   exp: y dy;  log: dy / x;  sqrt: dy / (2 y);  tanh: (1 - y^2) dy;  sigmoid: y (1 - y) dy;
//   relu: dy where y > 0 (or NaN), else 0.
template <class S>
void unary_backward(Unary f, const S* saved, const S* dy, S* dx, int64_t n);

// Whether unary_backward reads the input (true) or the output (false) of the forward function.
constexpr bool unary_saves_input(Unary f) {
  return f == Unary::kLog;
}

}  // namespace chargrad::kernels
