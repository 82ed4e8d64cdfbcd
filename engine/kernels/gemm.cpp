// The public products: which loops run and whether threads help.
#include "engine/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_ref.h"

namespace chargrad::kernels {

namespace {

// Products (M N K) and bytes of B up to which handing work to a thread costs more than it brings:
// for one row, 256 kB of B out of the caches take 3 us, and half of it elsewhere as long where the
// threads' processors share no cache.
constexpr int64_t kParallelWork = int64_t{1} << 17;
constexpr int64_t kParallelBytes = int64_t{1} << 18;

template <class S, class C>
void fill_rows(const Product<S, C>& p) {
  for (int64_t i = 0; i < p.M; ++i) {
    for (int64_t j = 0; j < p.N; ++j) {
      p.c[i * p.ldc + j] = p.bias == nullptr ? C{} : C(p.bias[j]);
    }
  }
}

}  // namespace

template <class S, class C>
void multiply(const Product<S, C>& p, Run run) {
  if (p.M == 0 || p.N == 0) {
    return;
  }
  if (p.K == 0) {
    fill_rows(p);
    return;
  }
  const int64_t bytes = p.N * p.K * static_cast<int64_t>(sizeof(S));
  if (p.M * p.N * p.K < kParallelWork && bytes <= kParallelBytes) {
    run = Run::kSerial;
  }
  if constexpr (!std::is_same_v<S, double>) {
    if (active_tier() != Tier::kRef) {
      multiply_fast(p, run);
      return;
    }
  }
  const int64_t rows = ceil_div(kParallelWork, p.N * p.K);
  for_chunks(run, ceil_div(p.M, rows), [&](int64_t chunk) {
    const Product<S, C> q = p.part(chunk * rows, std::min(rows, p.M - chunk * rows), 0, p.N);
    ref::gemm(q.M, q.N, q.K, q.a, q.b, q.c, q.ldc, q.bias);
  });
}

template <class S, class C>
void gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b, C* c,
          int64_t ldc, const BiasOf<S>* bias) {
  multiply<S, C>({M, N, K, a, b, c, ldc, bias}, Run::kParallel);
}

template <class S, class C>
void gemm_serial(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b,
                 C* c, int64_t ldc, const BiasOf<S>* bias) {
  multiply<S, C>({M, N, K, a, b, c, ldc, bias}, Run::kSerial);
}

template <class S, class C>
void gemm_batched(int64_t batch, const BatchStrides& strides, int64_t M, int64_t N, int64_t K,
                  const MatrixView<S>& a, const MatrixView<S>& b, C* c, int64_t ldc,
                  const BiasOf<S>* bias) {
  if (strides.b == 0 && strides.a == M * a.row_stride && strides.c == M * ldc) {
    gemm(batch * M, N, K, a, b, c, ldc, bias);  // One tall product.
    return;
  }
  const auto one = [&](int64_t i, Run run) {
    multiply<S, C>({M,
                    N,
                    K,
                    {a.data + i * strides.a, a.row_stride, a.column_stride},
                    {b.data + i * strides.b, b.row_stride, b.column_stride},
                    c + i * strides.c,
                    ldc,
                    bias},
                   run);
  };
  // Many products: threads take whole ones, several at a time if they are small. Few: each is cut.
  const int64_t work = std::max<int64_t>(1, M * N * K);
  if (batch < kEnoughChunks && work > kParallelWork) {
    for (int64_t i = 0; i < batch; ++i) {
      one(i, Run::kParallel);
    }
    return;
  }
  const int64_t size = ceil_div(kParallelWork, work);
  parallel_for(ceil_div(batch, size), [&](int64_t chunk) {
    for (int64_t i = chunk * size; i < std::min(batch, (chunk + 1) * size); ++i) {
      one(i, Run::kSerial);
    }
  });
}

template void multiply(const Product<float, float>&, Run);
template void gemm(int64_t, int64_t, int64_t, const MatrixView<float>&, const MatrixView<float>&,
                   float*, int64_t, const float*);
template void gemm_serial(int64_t, int64_t, int64_t, const MatrixView<float>&,
                          const MatrixView<float>&, float*, int64_t, const float*);
template void gemm_batched(int64_t, const BatchStrides&, int64_t, int64_t, int64_t,
                           const MatrixView<float>&, const MatrixView<float>&, float*, int64_t,
                           const float*);
template void multiply(const Product<double, double>&, Run);
template void gemm(int64_t, int64_t, int64_t, const MatrixView<double>&, const MatrixView<double>&,
                   double*, int64_t, const double*);
template void gemm_serial(int64_t, int64_t, int64_t, const MatrixView<double>&,
                          const MatrixView<double>&, double*, int64_t, const double*);
template void gemm_batched(int64_t, const BatchStrides&, int64_t, int64_t, int64_t,
                           const MatrixView<double>&, const MatrixView<double>&, double*, int64_t,
                           const double*);
template void multiply(const Product<bfloat16, float>&, Run);
template void gemm(int64_t, int64_t, int64_t, const MatrixView<bfloat16>&,
                   const MatrixView<bfloat16>&, float*, int64_t, const float*);
template void gemm_serial(int64_t, int64_t, int64_t, const MatrixView<bfloat16>&,
                          const MatrixView<bfloat16>&, float*, int64_t, const float*);
template void gemm_batched(int64_t, const BatchStrides&, int64_t, int64_t, int64_t,
                           const MatrixView<bfloat16>&, const MatrixView<bfloat16>&, float*,
                           int64_t, const float*);
template void multiply(const Product<bfloat16, bfloat16>&, Run);
template void gemm(int64_t, int64_t, int64_t, const MatrixView<bfloat16>&,
                   const MatrixView<bfloat16>&, bfloat16*, int64_t, const float*);
template void gemm_serial(int64_t, int64_t, int64_t, const MatrixView<bfloat16>&,
                          const MatrixView<bfloat16>&, bfloat16*, int64_t, const float*);
template void gemm_batched(int64_t, const BatchStrides&, int64_t, int64_t, int64_t,
                           const MatrixView<bfloat16>&, const MatrixView<bfloat16>&, bfloat16*,
                           int64_t, const float*);

}  // namespace chargrad::kernels
