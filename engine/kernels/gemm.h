// Matrix products over pointers and strides, S = float or double.
//   C (M, N) = A (M, K) . B (K, N) [+ bias (N), added to every row]
// K = 0 gives zeros or the bias; M = 0 or N = 0 does nothing.
//
// What an output is does not depend on M, on N, on its place in C, on the strides of A and B, on
// the number of threads, nor on which of the functions below computes it. With float32 it is the
// bias (or zero) plus a single chain of fused multiply-adds over k in ascending order; a K above
// kLongK is cut into stretches of kStretchK, each a chain from zero, added in ascending order.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

inline constexpr int64_t kLongK = 4096;
inline constexpr int64_t kStretchK = 256;

// Element (i, j) is data[i * row_stride + j * column_stride]; any strides, zero and negative too.
template <class S>
struct MatrixView {
  const S* data;
  int64_t row_stride;
  int64_t column_stride;
};

template <class S>
MatrixView<S> transposed(const MatrixView<S>& m) {
  return {m.data, m.column_stride, m.row_stride};
}

// C is row-major, its rows ldc >= N elements apart; it overlaps neither A nor B. bias may be null.
// Threads own tiles of C.
template <class S>
void gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b, S* c,
          int64_t ldc, const S* bias = nullptr);

// The same on the calling thread alone, for use inside a chunk of parallel_for.
template <class S>
void gemm_serial(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b,
                 S* c, int64_t ldc, const S* bias = nullptr);

// A batch of products: matrix i starts i * stride elements after the first; the strides of A and B
// may be 0 (one matrix for all). The bias serves every product.
struct BatchStrides {
  int64_t a;
  int64_t b;
  int64_t c;
};
template <class S>
void gemm_batched(int64_t batch, const BatchStrides& strides, int64_t M, int64_t N, int64_t K,
                  const MatrixView<S>& a, const MatrixView<S>& b, S* c, int64_t ldc,
                  const S* bias = nullptr);

}  // namespace chargrad::kernels
