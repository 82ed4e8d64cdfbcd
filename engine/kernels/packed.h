// A matrix that is multiplied with again and again, as a layer's weight is in decoding.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kernels/gemm.h"

namespace chargrad::kernels {

// B (K, N) of S = float or bfloat16, copied once into the form that products read, so that a
// product of one row runs at the speed of memory. Immutable and free to use from any thread; may be
// moved, not copied.
template <class S>
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(int64_t K, int64_t N, const MatrixView<S>& b);

  int64_t K() const { return K_; }
  int64_t N() const { return N_; }

  // C (M, N) = A (M, K) . B + bias: bit for bit what gemm<S, C>(M, N, K, a, b, c, ldc, bias) gives.
  template <class C>
  void multiply(int64_t M, const MatrixView<S>& a, C* c, int64_t ldc,
                const BiasOf<S>* bias = nullptr) const;

 private:
  int64_t K_ = 0;
  int64_t N_ = 0;
  std::shared_ptr<const void> data_;  // A part of memory that several may share.
};

}  // namespace chargrad::kernels
