// Matrix products over pointers and strides.
//   C (M, N) = A (M, K) . B (K, N) [+ bias (N), added to every row]
// K = 0 gives zeros or the bias; M = 0 or N = 0 does nothing.
//
// A and B hold S = float, double or bfloat16; C holds S as well, or float where S is bfloat16. Sums
// of bfloat16 are float32, rounded once at the end, and so is the bias.
//
// What an output is does not depend on M, on N, on its place in C, on the strides of A and B, on
// the number of threads, nor on which of the functions below computes it. With float32 it is the
// bias (or zero) plus a single chain of fused multiply-adds over k in ascending order; a K above
// kLongK is cut into stretches of kStretchK, each a chain from zero, added in ascending order.
// With bfloat16 the same holds of the tier's own chain (the CPU's instructions add two products or
// 32 at a time, and take subnormal numbers for zero), with stretches of kStretchKBFloat16; tiers
// without such instructions give float32's result of the same operands, rounded.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/dtype.h"

namespace chargrad::kernels {

inline constexpr int64_t kLongK = 4096;
inline constexpr int64_t kStretchK = 256;
inline constexpr int64_t kStretchKBFloat16 = 512;

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

// What a bias is made of.
template <class S>
using BiasOf = std::conditional_t<std::is_same_v<S, bfloat16>, float, S>;

// C is row-major, its rows ldc >= N elements apart; it overlaps neither A nor B. bias may be null.
// Threads own tiles of C.
template <class S, class C>
void gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b, C* c,
          int64_t ldc, const BiasOf<S>* bias = nullptr);

// The same on the calling thread alone, for use inside a chunk of parallel_for.
template <class S, class C>
void gemm_serial(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b,
                 C* c, int64_t ldc, const BiasOf<S>* bias = nullptr);

// A batch of products: matrix i starts i * stride elements after the first; the strides of A and B
// may be 0 (one matrix for all). The bias serves every product.
struct BatchStrides {
  int64_t a;
  int64_t b;
  int64_t c;
};
template <class S, class C>
void gemm_batched(int64_t batch, const BatchStrides& strides, int64_t M, int64_t N, int64_t K,
                  const MatrixView<S>& a, const MatrixView<S>& b, C* c, int64_t ldc,
                  const BiasOf<S>* bias = nullptr);

}  // namespace chargrad::kernels
