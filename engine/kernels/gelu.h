// The Gaussian error linear unit over contiguous arrays.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

// y_i = x_i Phi(x_i), Phi the standard normal distribution function; with `tanh_form` the
// approximation Phi(x) = (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3). y may be x.
template <class S>
void gelu_forward(const S* x, S* y, int64_t n, bool tanh_form);

// dx_i = (Phi(x_i) + x_i Phi'(x_i)) dy_i, of the same form. dx may be dy.
template <class S>
void gelu_backward(const S* x, const S* dy, S* dx, int64_t n, bool tanh_form);

}  // namespace chargrad::kernels
