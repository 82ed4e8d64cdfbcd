#include "models/decoder.h"

#include <algorithm>

#include "engine/ops.h"

namespace chargrad {

Decoder::Decoder(int64_t batch, int64_t block_size)
    : block_size_(block_size),
      autocast_(autocast_dtype()),
      ids_(empty({batch, 2 * block_size}, kInt64)) {}

Tensor Decoder::append(const Tensor& ids) {
  CHARGRAD_CHECK(
      ids.dtype() == kInt64 && ids.dim() == 2 && ids.size(0) == ids_.size(0) && ids.size(1) > 0,
      "Decoder: ids must be int64 of shape [", ids_.size(0), ", T] with T >= 1, got ",
      dtype_name(ids.dtype()), " of shape ", ids.shape());
  const NoGradGuard no_grad;
  const AutocastGuard autocast(autocast_.value_or(kFloat32));
  const bool one_more = in_step_ && ids.size(1) == 1 && end_ < block_size_;
  in_step_ = false;
  store(ids);
  const int64_t length = std::min(end_, block_size_);
  Tensor y = logits(narrow(ids_, 1, end_ - length, length), one_more);  // (B, V)
  in_step_ = true;
  return y;
}

void Decoder::store(const Tensor& ids) {
  const int64_t count = std::min(ids.size(1), block_size_);
  if (end_ + count > ids_.size(1)) {
    const int64_t kept = block_size_ - count;
    copy_(narrow(ids_, 1, 0, kept), narrow(ids_, 1, end_ - kept, kept));
    end_ = kept;
  }
  copy_(narrow(ids_, 1, end_, count), narrow(ids, 1, ids.size(1) - count, count));
  end_ += count;
}

}  // namespace chargrad
