// The Gaussian error linear unit over contiguous arrays.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

// y_i = x_i Phi(x_i), Phi the standard normal distribution function; with `tanh_form` the
// approximation Phi(x) = (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3). y may be x.
// Unless null, slope_i = dy_i / dx_i = Phi(x_i) + x_i Phi'(x_i), of the same form: it shares Phi
// with y, and the gradient of x is a product with it. X and Y: float, double or bfloat16 both, or
// float and bfloat16.
template <class X, class Y>
void gelu(const X* x, Y* y, Y* slope, int64_t n, bool tanh_form);

// dx_i = dy_i slope_i, where slope_i is rounded to Y as gelu does. dx may be x or dy.
template <class X, class Y>
void gelu_backward(const X* x, const Y* dy, Y* dx, int64_t n, bool tanh_form);

// One target's loops, for the choice in gelu_simd.cpp.
template <class X, class Y>
struct GeluFunctions {
  void (*forward)(const X* x, Y* y, Y* slope, int64_t n, bool tanh_form);
  void (*backward)(const X* x, const Y* dy, Y* dx, int64_t n, bool tanh_form);
};

}  // namespace chargrad::kernels
