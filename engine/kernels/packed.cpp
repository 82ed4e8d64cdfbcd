#include "engine/kernels/packed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_product.h"

namespace chargrad::kernels {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
// Several matrices share one, so that small ones lie in huge pages too.
constexpr int64_t kBlockBytes = 4 * kHugePage;

// Memory that is handed out once, from front to end. Reading every weight once for a single row is
// bound by memory; in pages of 4 KiB it took 1.5 times as long (AMD EPYC, Zen 4, 2026-11-29).
class Block {
 public:
  explicit Block(int64_t bytes)
      : bytes_(round_up(bytes, kHugePage)),
        data_(static_cast<std::byte*>(
            ::operator new (static_cast<size_t>(bytes_), std::align_val_t{kHugePage}))) {
#ifdef MADV_HUGEPAGE
    madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
#endif
  }
  ~Block() {
    ::operator delete (data_, std::align_val_t{kHugePage});
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Null where it does not fit any more.
  std::byte* take(int64_t bytes) {
    const int64_t begin = used_;
    if (bytes > bytes_ - begin) {
      return nullptr;
    }
    used_ = round_up(begin + bytes, 64);
    return data_ + begin;
  }

 private:
  int64_t bytes_;
  int64_t used_ = 0;
  std::byte* data_;
};

// 64-byte aligned; freed with the last that shares its block.
std::shared_ptr<std::byte> take_memory(int64_t bytes) {
  thread_local std::weak_ptr<Block> current;
  if (const std::shared_ptr<Block> block = current.lock()) {
    if (std::byte* const data = block->take(bytes)) {
      return {block, data};
    }
  }
  const auto block = std::make_shared<Block>(std::max(bytes, kBlockBytes));
  current = block;
  return {block, block->take(bytes)};
}

}  // namespace

// The form of pack_b; on the ref tier plain rows.
template <class S>
PackedMatrix<S>::PackedMatrix(int64_t K, int64_t N, const MatrixView<S>& b) : K_(K), N_(N) {
  if (K == 0 || N == 0) {
    return;
  }
  const bool plain = active_tier() == Tier::kRef;
  const int64_t bytes = plain ? K * N * static_cast<int64_t>(sizeof(S)) : packed_b_bytes(b, K, N);
  const std::shared_ptr<std::byte> memory = take_memory(bytes);
  data_ = memory;
  if (!plain) {
    pack_b(b, K, N, memory.get());
    return;
  }
  S* const data = reinterpret_cast<S*>(memory.get());
  for (int64_t k = 0; k < K; ++k) {
    for (int64_t j = 0; j < N; ++j) {
      data[k * N + j] = b.data[k * b.row_stride + j * b.column_stride];
    }
  }
}

template <class S>
template <class C>
void PackedMatrix<S>::multiply(int64_t M, const MatrixView<S>& a, C* c, int64_t ldc,
                               const BiasOf<S>* bias) const {
  Product<S, C> p = {M, N_, K_, a, {}, c, ldc, bias};
  if (active_tier() == Tier::kRef) {
    p.b = {static_cast<const S*>(data_.get()), N_, 1};
  } else {
    p.packed_b = data_.get();
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
