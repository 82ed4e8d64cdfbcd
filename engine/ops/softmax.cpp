#include "engine/kernels/softmax.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// `dim` and the last dim exchanged: the slices along `dim` become rows of a contiguous tensor;
// applied to those rows, the way back. Outside the graph; x itself where nothing changes.
Tensor swap_with_last(const Tensor& x, int64_t dim) {
  const Tensor bare = x.detach();
  return x.dim() == 0 ? bare : bare.transpose(dim, -1).contiguous();
}

// y = forward(x) and dx = backward(y, dy), kernels over (rows, cols), along `dim`.
template <class Forward, class Backward>
Tensor along_dim(const char* op, const Tensor& x, int64_t dim, Forward forward, Backward backward) {
  const int64_t cols = x.dim() == 0 ? 1 : x.size(dim);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  const Tensor in = swap_with_last(x, dim);
  const Tensor out = empty_like(in);
  visit_floating(x.dtype(), [&]<class S>() { forward(in.data<S>(), out.data<S>(), rows, cols); });

  const Tensor y = swap_with_last(out, dim);
  return record(op, y, {x}, save(y),
                [dim, rows, cols, backward](const Tensor& dy, const Saved& saved) -> Grads {
                  const Tensor y_rows = swap_with_last(saved[0], dim);
                  const Tensor dy_rows = swap_with_last(dy, dim);
                  const Tensor dx_rows = empty_like(y_rows);
                  visit_floating(dy.dtype(), [&]<class S>() {
                    backward(y_rows.data<S>(), dy_rows.data<S>(), dx_rows.data<S>(), rows, cols);
                  });
                  return {swap_with_last(dx_rows, dim)};
                });
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) {
  check_floating("softmax", x);
  dim = wrap_dim("softmax", x, dim);
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [dim](const Tensor& wide) { return softmax(wide, dim); });
  }
  // dx = y * (dy - sum(y * dy)), slice by slice.
  return along_dim(
      "softmax", x, dim,
      []<class S>(const S* in, S* y, int64_t rows, int64_t cols) {
        kernels::softmax_forward(in, y, rows, cols);
      },
      []<class S>(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols) {
        kernels::softmax_backward(y, dy, dx, rows, cols);
      });
}

Tensor log_softmax(const Tensor& x, int64_t dim) {
  check_floating("log_softmax", x);
  dim = wrap_dim("log_softmax", x, dim);
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [dim](const Tensor& wide) { return log_softmax(wide, dim); });
  }
  // dx = dy - exp(y) * sum(dy), slice by slice.
  return along_dim(
      "log_softmax", x, dim,
      []<class S>(const S* in, S* y, int64_t rows, int64_t cols) {
        kernels::log_softmax_forward(in, y, rows, cols);
      },
      []<class S>(const S* y, const S* dy, S* dx, int64_t rows, int64_t cols) {
        kernels::log_softmax_backward(y, dy, dx, rows, cols);
      });
}

}  // namespace chargrad
