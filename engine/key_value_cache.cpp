// One row of attention costs little arithmetic: both calls work on the memory at hand, because the
// views that ops would need of it took most of a small model's time.
#include "engine/key_value_cache.h"

#include <cmath>
#include <vector>

#include "engine/kernels/attention.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {

KeyValueCache::KeyValueCache(int64_t batch, int64_t n_head, int64_t positions)
    : batch_(batch), n_head_(n_head), positions_(positions) {}

void KeyValueCache::keep(const Tensor& kv, int64_t first) {
  check_floating("KeyValueCache", kv, "kv");
  CHARGRAD_CHECK(kv.dim() == 3 && kv.size(0) == batch_ && kv.size(2) % (2 * n_head_) == 0,
                 "KeyValueCache: kv must have shape [", batch_, ", t, 2 C] with C a multiple of ",
                 n_head_, ", got ", kv.shape());
  const int64_t t = kv.size(1), C = kv.size(2) / 2, D = C / n_head_;
  CHARGRAD_CHECK(first >= 0 && first <= seen_ && t <= positions_ - first,
                 "KeyValueCache: positions from ", first, " must follow the ", seen_,
                 " that are kept and end within ", positions_, ", got ", t);
  if (first == 0) {
    keys_ = empty({batch_, n_head_, D, positions_}, kv.dtype());
    values_ = empty({batch_, n_head_, positions_, D}, kv.dtype());
  }
  CHARGRAD_CHECK(kv.dtype() == keys_.dtype() && D == keys_.size(2), "KeyValueCache: kv must be ",
                 dtype_name(keys_.dtype()), " with 2 C = ", 2 * n_head_ * keys_.size(2), ", got ",
                 dtype_name(kv.dtype()), " of shape ", kv.shape());
  visit_any_floating(kv.dtype(), [&]<class S>() {
    for (int64_t b = 0; b < batch_; ++b) {
      const S* const from = kv.data<S>() + b * kv.stride(0);
      const int64_t row = kv.stride(1), column = kv.stride(2);
      S* const keys = keys_.data<S>() + b * C * positions_ + first;
      S* const values = values_.data<S>() + (b * n_head_ * positions_ + first) * D;
      for (int64_t c = 0; c < C; ++c) {
        for (int64_t i = 0; i < t; ++i) {
          keys[c * positions_ + i] = from[i * row + c * column];
        }
      }
      for (int64_t h = 0; h < n_head_; ++h) {
        for (int64_t i = 0; i < t; ++i) {
          for (int64_t d = 0; d < D; ++d) {
            values[(h * positions_ + i) * D + d] = from[i * row + (C + h * D + d) * column];
          }
        }
      }
    }
  });
  seen_ = first + t;
}

Tensor KeyValueCache::attend(const Tensor& q) const {
  CHARGRAD_CHECK(seen_ > 0, "KeyValueCache: no position is kept yet");
  const int64_t D = keys_.size(2), C = n_head_ * D;
  CHARGRAD_CHECK(q.shape() == (Shape{batch_, 1, C}) && q.dtype() == keys_.dtype(),
                 "KeyValueCache: q must be ", dtype_name(keys_.dtype()), " of shape ",
                 Shape{batch_, 1, C}, ", got ", dtype_name(q.dtype()), " of shape ", q.shape());
  Tensor y = empty(q.shape(), q.dtype());
  visit_any_floating(q.dtype(), [&]<class S>() {
    kernels::AttentionArgs<S> args;
    args.B = batch_;
    args.H = n_head_;
    args.T = 1;
    args.keys = seen_;
    args.D = args.E = D;
    args.q = {q.data<S>(), q.stride(0), D * q.stride(2), q.stride(1), q.stride(2)};
    args.k = {keys_.data<S>(), C * positions_, D * positions_, 1, positions_};
    args.v = {values_.data<S>(), C * positions_, D * positions_, D, 1};
    args.scale = static_cast<Wide<S>>(1 / std::sqrt(static_cast<double>(D)));
    std::vector<Wide<S>> lse(static_cast<size_t>(batch_ * n_head_));
    kernels::attention_forward<S>(args, {y.data<S>(), C, D, C, 1}, lse.data());
  });
  return y;
}

}  // namespace chargrad
