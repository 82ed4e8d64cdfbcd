#include "models/causal_average.h"

#include "engine/ops.h"

namespace chargrad {
namespace {

void check_batch(const char* name, const Tensor& x) {
  CHARGRAD_CHECK(x.dim() == 3, name, ": x must be (B, T, C), got shape ", x.shape());
}

}  // namespace

Tensor causal_average_loop(const Tensor& x) {
  check_batch("causal_average_loop", x);
  std::vector<Tensor> batch;
  for (int64_t b = 0; b < x.size(0); ++b) {
    std::vector<Tensor> rows;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const Tensor past = narrow(x.select(0, b), 0, 0, t + 1);  // (t + 1, C)
      rows.push_back(mean(past, {0}));                          // (C)
    }
    batch.push_back(stack(rows));  // (T, C)
  }
  return stack(batch);  // (B, T, C)
}

Tensor causal_average_matmul(const Tensor& x) {
  check_batch("causal_average_matmul", x);
  return matmul(causal_average_weights(x.size(1), x.dtype()), x);  // (T, T) @ (B, T, C)
}

Tensor causal_average_weights(int64_t T, DType dtype) {
  const Tensor w = tril(ones({T, T}, dtype));
  return w / sum(w, {1}, /*keepdim=*/true);
}

}  // namespace chargrad
