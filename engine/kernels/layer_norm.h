// Layer normalisation of the rows of a contiguous (rows, cols) array.
// X and Y: float, double or bfloat16 both, or float and bfloat16. Parameters and statistics are
// float beside bfloat16.
#pragma once

#include <cstdint>

#include "engine/dtype.h"

namespace chargrad::kernels {

// mean_i = sum_j x_ij / cols, rstd_i = 1 / sqrt(sum_j (x_ij - mean_i)^2 / cols + eps);
// y_ij = (x_ij - mean_i) rstd_i weight_j + bias_j. A null weight stands for ones, a null bias for
// zeros. y may be x.
template <class X, class Y>
void layer_norm_forward(const X* x, const Wide<X>* weight, const Wide<X>* bias, double eps,
                        int64_t rows, int64_t cols, Y* y, Wide<X>* mean, Wide<X>* rstd);

// With h_ij = (x_ij - mean_i) rstd_i and g_ij = dy_ij weight_j:
//   dx_ij = rstd_i (g_ij - mean_j(g_ij) - h_ij mean_j(g_ij h_ij))
//   dweight_j = sum_i dy_ij h_ij,  dbias_j = sum_i dy_ij
// A null output is not computed. dx may be x or dy.
template <class X, class Y>
void layer_norm_backward(const X* x, const Wide<X>* weight, const Wide<X>* mean,
                         const Wide<X>* rstd, const Y* dy, int64_t rows, int64_t cols, X* dx,
                         Wide<X>* dweight, Wide<X>* dbias);

// One target's loops, for the choice in layer_norm_simd.cpp. This backward adds to dweight and
// dbias, which the caller has cleared: a piece of the rows at a time.
template <class X, class Y>
struct LayerNormFunctions {
  void (*forward)(const X* x, const Wide<X>* weight, const Wide<X>* bias, double eps, int64_t rows,
                  int64_t cols, Y* y, Wide<X>* mean, Wide<X>* rstd);
  void (*backward)(const X* x, const Wide<X>* weight, const Wide<X>* mean, const Wide<X>* rstd,
                   const Y* dy, int64_t rows, int64_t cols, X* dx, Wide<X>* dweight,
                   Wide<X>* dbias);
};

}  // namespace chargrad::kernels
