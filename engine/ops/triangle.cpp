// tril and triu.
#include "engine/kernels/index.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool lower) {
  CHARGRAD_CHECK(x.dim() >= 2, op, ": at least two dims are required, got shape ", x.shape());
  const Tensor in = contiguous(x);
  Tensor y = empty_like(x);
  if (y.numel() == 0) {
    return reshape(x, x.shape());
  }
  const int64_t rows = x.size(-2), cols = x.size(-1), batch = x.numel() / rows / cols;
  visit_all(x.dtype(), [&]<class S>() {
    (lower ? kernels::tril<S> : kernels::triu<S>)(in.data<S>(), y.data<S>(), batch, rows, cols,
                                                  diagonal);
  });
  return record(op, y, {x}, save(), [op, diagonal, lower](const Tensor& dy, const Saved&) -> Grads {
    return {triangle(op, dy, diagonal, lower)};
  });
}

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) {
  return triangle("tril", x, diagonal, /*lower=*/true);
}

Tensor triu(const Tensor& x, int64_t diagonal) {
  return triangle("triu", x, diagonal, /*lower=*/false);
}

}  // namespace chargrad
