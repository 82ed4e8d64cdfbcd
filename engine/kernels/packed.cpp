#include "engine/kernels/packed.h"

#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_product.h"

namespace chargrad::kernels {

// The form of pack_b; on the ref tier plain rows.
template <class S>
PackedMatrix<S>::PackedMatrix(int64_t K, int64_t N, const MatrixView<S>& b) : K_(K), N_(N) {
  if (K == 0 || N == 0) {
    return;
  }
  const bool plain = active_tier() == Tier::kRef;
  const int64_t bytes = plain ? K * N * static_cast<int64_t>(sizeof(S)) : packed_b_bytes(b, K, N);
  void* const data = memory_.floats(ceil_div(bytes, sizeof(float)));
  data_ = data;
  if (!plain) {
    pack_b(b, K, N, data);
    return;
  }
  for (int64_t k = 0; k < K; ++k) {
    for (int64_t j = 0; j < N; ++j) {
      static_cast<S*>(data)[k * N + j] = b.data[k * b.row_stride + j * b.column_stride];
    }
  }
}

template <class S>
template <class C>
void PackedMatrix<S>::multiply(int64_t M, const MatrixView<S>& a, C* c, int64_t ldc,
                               const BiasOf<S>* bias) const {
  Product<S, C> p = {M, N_, K_, a, {}, c, ldc, bias};
  if (active_tier() == Tier::kRef) {
    p.b = {static_cast<const S*>(data_), N_, 1};
  } else {
    p.packed_b = data_;
  }
  kernels::multiply(p, Run::kParallel);
}

template class PackedMatrix<float>;
template class PackedMatrix<bfloat16>;
template void PackedMatrix<float>::multiply(int64_t, const MatrixView<float>&, float*, int64_t,
                                            const float*) const;
template void PackedMatrix<bfloat16>::multiply(int64_t, const MatrixView<bfloat16>&, float*,
                                               int64_t, const float*) const;
template void PackedMatrix<bfloat16>::multiply(int64_t, const MatrixView<bfloat16>&, bfloat16*,
                                               int64_t, const float*) const;

}  // namespace chargrad::kernels
