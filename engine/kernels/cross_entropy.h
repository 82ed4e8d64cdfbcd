// Mean cross-entropy of the rows of a contiguous (rows, V) array of logits against class indices.
// The logits are float, double or bfloat16; sums are float or double.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

struct CrossEntropy {
  double loss;    // The mean over the rows that count; NaN when none does, as in PyTorch.
  int64_t count;  // Rows whose target is not ignore_index.
};

// lse_i = log sum_j exp(x_ij), all that backward needs besides x (0 in ignored rows);
// loss = sum_i (lse_i - x_i,target_i) / count. lse is double, so that x - lse keeps float's
// precision however large x is.
// Requires: every target that is not ignore_index lies in [0, V).
template <class S>
CrossEntropy cross_entropy_forward(const S* x, const int64_t* target, int64_t rows, int64_t V,
                                   int64_t ignore_index, double* lse);

// dx_ij = (exp(x_ij - lse_i) - [j = target_i]) scale, 0 in ignored rows. scale is the gradient of
// the loss over count. dx may be x.
template <class S>
void cross_entropy_backward(const S* x, const int64_t* target, const double* lse, int64_t rows,
                            int64_t V, int64_t ignore_index, double scale, S* dx);

// One target's loops, for the choice in cross_entropy_simd.cpp; this forward gives the sum of the
// losses, not yet the mean.
template <class S>
struct CrossEntropyFunctions {
  CrossEntropy (*forward)(const S* x, const int64_t* target, int64_t rows, int64_t V,
                          int64_t ignore_index, double* lse);
  void (*backward)(const S* x, const int64_t* target, const double* lse, int64_t rows, int64_t V,
                   int64_t ignore_index, double scale, S* dx);
};

}  // namespace chargrad::kernels
