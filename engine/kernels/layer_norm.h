// Layer normalisation of the rows of a contiguous (rows, cols) array.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

// mean_i = sum_j x_ij / cols, rstd_i = 1 / sqrt(sum_j (x_ij - mean_i)^2 / cols + eps);
// y_ij = (x_ij - mean_i) rstd_i weight_j + bias_j. A null weight stands for ones, a null bias for
// zeros. y may be x.
template <class S>
void layer_norm_forward(const S* x, const S* weight, const S* bias, double eps, int64_t rows,
                        int64_t cols, S* y, S* mean, S* rstd);

// With h_ij = (x_ij - mean_i) rstd_i and g_ij = dy_ij weight_j:
//   dx_ij = rstd_i (g_ij - mean_j(g_ij) - h_ij mean_j(g_ij h_ij))
//   dweight_j = sum_i dy_ij h_ij,  dbias_j = sum_i dy_ij
// A null output is not computed. dx may be dy.
template <class S>
void layer_norm_backward(const S* x, const S* weight, const S* mean, const S* rstd, const S* dy,
                         int64_t rows, int64_t cols, S* dx, S* dweight, S* dbias);

}  // namespace chargrad::kernels
