// softmax and log_softmax of the rows of a contiguous (rows, cols) array.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

// What softmax_forward makes of a row that holds nothing but -inf.
enum class EmptyRow {
  kNaN,   // 0 / 0, as PyTorch.
  kZero,  // All zeros: attention to nothing. The gradient of such a row is zero too.
};

// y_ij = exp(x_ij - max_j x_ij) / sum_j exp(x_ij - max_j x_ij). y may be x. A row with a NaN or
// +inf becomes NaN throughout.
template <class S>
void softmax_forward(const S* x, S* y, int64_t rows, int64_t cols,
                     EmptyRow empty_row = EmptyRow::kNaN);

// dx_ij = y_ij (dy_ij - sum_j y_ij dy_ij) from the output y. dx may be dy.
template <class S>
void softmax_backward(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols);

// y_ij = (x_ij - max_j x_ij) - log sum_j exp(x_ij - max_j x_ij). y may be x. A row of -inf is NaN.
template <class S>
void log_softmax_forward(const S* x, S* y, int64_t rows, int64_t cols);

// dx_ij = dy_ij - exp(y_ij) sum_j dy_ij from the output y. dx may be dy.
template <class S>
void log_softmax_backward(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols);

}  // namespace chargrad::kernels
