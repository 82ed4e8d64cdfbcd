// matmul: matrix products with broadcast batch dims.
#include "engine/kernels/gemm.h"
#include "engine/ops.h"
#include "engine/ops/product.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

template <class S>
kernels::MatrixView<S> last_two_dims(const Tensor& x) {
  return {x.data<S>(), x.stride(-2), x.stride(-1)};
}

// x with its batch dims expanded to `batch`, such that one stride leads from each matrix to the
// next; a copy where x's own strides do not.
Tensor with_one_batch_stride(const Tensor& x, const Shape& batch, int64_t& batch_stride) {
  Shape shape = batch;
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  Tensor wide = expand(x, shape);
  batch_stride = batch.empty() ? 0 : wide.strides()[batch.size() - 1];
  for (size_t i = 0; i + 1 < batch.size(); ++i) {
    if (wide.strides()[i] != wide.strides()[i + 1] * batch[i + 1]) {
      wide = wide.contiguous();
      batch_stride = x.size(-2) * x.size(-1);
      break;
    }
  }
  return wide;
}

// The batch dims of a product.
Shape batch_shape(const Tensor& a, const Tensor& b) {
  return broadcast_shapes("matmul", Shape(a.shape().begin(), a.shape().end() - 2),
                          Shape(b.shape().begin(), b.shape().end() - 2));
}

// a (..., M, K) and b (..., K, N), both of the same dtype and of two dims or more, to `dtype`.
Tensor product(const Tensor& a, const Tensor& b, DType dtype) {
  const int64_t M = a.size(-2), K = a.size(-1), N = b.size(-1);
  const Shape batch = batch_shape(a, b);
  Shape shape = batch;
  shape.push_back(M);
  shape.push_back(N);
  Tensor y = empty(shape, product_dtype(a.dtype(), dtype));
  if (y.numel() == 0) {
    return y.to(dtype);
  }

  kernels::BatchStrides strides{0, 0, M * N};
  const Tensor wide_a = with_one_batch_stride(a, batch, strides.a);
  const Tensor wide_b = with_one_batch_stride(b, batch, strides.b);
  visit_product(a.dtype(), y.dtype(), [&]<class S, class C>() {
    kernels::gemm_batched<S>(numel_of(batch), strides, M, N, K, last_two_dims<S>(wide_a),
                             last_two_dims<S>(wide_b), y.data<C>(), N);
  });
  return y.to(dtype);
}

// The gradient of an input of that shape, rounded after the sum over broadcast batch dims.
Tensor input_gradient(const Tensor& a, const Tensor& b, const Shape& shape, DType dtype) {
  const bool summed = batch_shape(a, b) != Shape(shape.begin(), shape.end() - 2);
  return sum_to(product(a, b, summed ? sums_dtype(dtype) : dtype), shape).to(dtype);
}

// a and b rounded to `dtype`, the result in it; gradients in the inputs' own dtypes.
//   da = dy b^T, db = a^T dy, summed over broadcast batch dims.
Tensor recorded_product(const Tensor& a, const Tensor& b, DType dtype) {
  const Tensor left = a.detach().to(dtype), right = b.detach().to(dtype);
  const DType da_dtype = a.dtype(), db_dtype = b.dtype();
  return record(
      "matmul", product(left, right, dtype), {a, b}, save(left, right),
      [da_dtype, db_dtype](const Tensor& dy, const Saved& saved) -> Grads {
        Grads grads(2);
        if (saved.needs_grad(0)) {
          grads[0] = input_gradient(dy, saved[1].transpose(-1, -2), saved[0].shape(), da_dtype);
        }
        if (saved.needs_grad(1)) {
          grads[1] = input_gradient(saved[0].transpose(-1, -2), dy, saved[1].shape(), db_dtype);
        }
        return grads;
      });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_floating("matmul", a, "a");
  check_floating("matmul", b, "b");
  CHARGRAD_CHECK(a.dim() >= 1 && b.dim() >= 1,
                 "matmul: both tensors must have at least one dim, got a ", a.shape(), " and b ",
                 b.shape());
  const int64_t K = a.size(-1), inner_b = b.size(b.dim() == 1 ? 0 : -2);
  CHARGRAD_CHECK(K == inner_b, "matmul: inner sizes must be equal, got a ", a.shape(), " and b ",
                 b.shape(), " (a.size(-1)=", K, ", b.size(", b.dim() == 1 ? 0 : -2, ")=", inner_b,
                 ")");
  // A vector is a row on the left, a column on the right, and that dim is dropped again.
  if (a.dim() == 1) {
    return squeeze(matmul(unsqueeze(a, 0), b), b.dim() == 1 ? 0 : -2);
  }
  if (b.dim() == 1) {
    return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  }

  const DType dtype = autocast_from(promote_types(a.dtype(), b.dtype()));
  if (b.dim() == 2 && a.dim() > 2) {  // one product over all rows
    Shape shape = a.shape();
    shape.back() = b.size(1);
    const int64_t rows = numel_of(Shape(a.shape().begin(), a.shape().end() - 1));
    return recorded_product(a.reshape({rows, K}), b, dtype).reshape(shape);
  }
  return recorded_product(a, b, dtype);
}

}  // namespace chargrad
