#include "engine/kernels/cross_entropy.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

void check_targets(const Tensor& target, int64_t V, int64_t ignore_index) {
  const int64_t* const ids = target.data<int64_t>();
  for (int64_t i = 0; i < target.numel(); ++i) {
    CHARGRAD_CHECK((ids[i] >= 0 && ids[i] < V) || ids[i] == ignore_index, "cross_entropy: target ",
                   ids[i], " at position ", i, " is outside [0, ", V, ")");
  }
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, int64_t ignore_index) {
  check_floating("cross_entropy", logits, "logits");
  check_int64("cross_entropy", target, "target");
  CHARGRAD_CHECK(
      logits.dim() > 0 && target.shape() == Shape(logits.shape().begin(), logits.shape().end() - 1),
      "cross_entropy: target must have the shape of logits without the last dim, got "
      "logits ",
      logits.shape(), " and target ", target.shape());
  const int64_t V = logits.size(-1), rows = target.numel();
  const Tensor x = logits.contiguous(), ids = target.contiguous();
  check_targets(ids, V, ignore_index);

  const Tensor lse = empty({rows}, kFloat64);
  kernels::CrossEntropy result{};
  visit_any_floating(x.dtype(), [&]<class S>() {
    result = kernels::cross_entropy_forward(x.data<S>(), ids.data<int64_t>(), rows, V, ignore_index,
                                            lse.data<double>());
  });
  const Tensor loss = scalar(result.loss, x.dtype() == kFloat64 ? kFloat64 : kFloat32);

  // dlogits = dy / count * (exp(logits - lse) - onehot(target)), 0 in ignored rows.
  const int64_t count = result.count;
  return record("cross_entropy", loss, {logits}, save(x, ids, lse),
                [rows, V, ignore_index, count](const Tensor& dy, const Saved& saved) -> Grads {
                  const Tensor kept = saved[0], dx = saved.reuse_or_empty(kept);
                  const double scale = dy.item() / static_cast<double>(count);
                  visit_any_floating(dx.dtype(), [&]<class S>() {
                    kernels::cross_entropy_backward(kept.data<S>(), saved[1].data<int64_t>(),
                                                    saved[2].data<double>(), rows, V, ignore_index,
                                                    scale, dx.data<S>());
                  });
                  return {dx};
                });
}

}  // namespace chargrad
