#include "engine/ops_common.h"

#include <algorithm>

#include "engine/ops.h"

namespace chargrad {

int64_t wrap_dim(const char* op, const Tensor& x, int64_t dim) {
  const int64_t rank = std::max<int64_t>(x.dim(), 1);
  CHARGRAD_CHECK(dim >= -rank && dim < rank, op, ": dim ", dim, " is out of range for shape ",
                 x.shape());
  return dim < 0 ? dim + rank : dim;
}

std::vector<int64_t> wrap_dims(const char* op, const Tensor& x, const std::vector<int64_t>& dims) {
  std::vector<int64_t> wrapped;
  if (dims.empty()) {
    for (int64_t i = 0; i < x.dim(); ++i) {
      wrapped.push_back(i);
    }
    return wrapped;
  }
  for (const int64_t dim : dims) {
    wrapped.push_back(wrap_dim(op, x, dim));
  }
  std::sort(wrapped.begin(), wrapped.end());
  CHARGRAD_CHECK(std::adjacent_find(wrapped.begin(), wrapped.end()) == wrapped.end(), op,
                 ": a dim appears twice in ", dims, " for shape ", x.shape());
  return wrapped;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {  // from the last dim
    const int64_t size_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t size_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    CHARGRAD_CHECK(size_a == size_b || size_a == 1 || size_b == 1, op,
                   ": sizes must be equal or 1 to broadcast, got shapes ", a, " and ", b);
    result[result.size() - 1 - i] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

Shape broadcast_strides(const Tensor& x, const Shape& shape) {
  Shape strides(shape.size(), 0);
  const size_t front = shape.size() - x.shape().size();
  for (size_t i = 0; i < x.shape().size(); ++i) {
    strides[front + i] = x.shape()[i] == 1 ? 0 : x.strides()[i];
  }
  return strides;
}

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) {
    return dy;
  }
  const size_t front = dy.shape().size() - shape.size();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < dy.shape().size(); ++i) {
    if (i < front || (shape[i - front] == 1 && dy.shape()[i] != 1)) {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  return dims.empty() ? dy.reshape(shape) : sum(dy, dims, /*keepdim=*/true).reshape(shape);
}

void check_floating(const char* op, const Tensor& x, const char* name) {
  CHARGRAD_CHECK(x.defined(), op, ": ", name, " is undefined");
  CHARGRAD_CHECK(is_floating(x.dtype()), op, ": ", name, " must be floating, got ",
                 dtype_name(x.dtype()));
}

void check_int64(const char* op, const Tensor& x, const char* name) {
  CHARGRAD_CHECK(x.defined(), op, ": ", name, " is undefined");
  CHARGRAD_CHECK(x.dtype() == kInt64, op, ": ", name, " must be int64, got ",
                 dtype_name(x.dtype()));
}

void check_bool(const char* op, const Tensor& x, const char* name) {
  CHARGRAD_CHECK(x.defined(), op, ": ", name, " is undefined");
  CHARGRAD_CHECK(x.dtype() == kBool, op, ": ", name, " must be bool, got ", dtype_name(x.dtype()));
}

void check_fits(const char* op, double value, DType dtype) {
  // 2^63 is the first double that int64 does not hold.
  CHARGRAD_CHECK(dtype != kInt64 || (value >= -0x1p63 && value < 0x1p63), op, ": ", value,
                 " does not fit into int64");
}

void begin_in_place(const char* op, const Tensor& x) {
  CHARGRAD_CHECK(!(grad_enabled() && x.requires_grad()), op,
                 ": a tensor that requires grad cannot be changed in place while ops are "
                 "recorded; use a NoGradGuard");
  for (size_t i = 0; i < x.shape().size(); ++i) {
    CHARGRAD_CHECK(x.strides()[i] != 0 || x.shape()[i] <= 1, op,
                   ": the elements of an expanded tensor share memory, got shape ", x.shape(),
                   " with strides ", x.strides());
  }
  x.bump_version();
}

bool is_unshared(const Tensor& x) {
  return x.shared_impl().use_count() == 1 && x.storage().use_count() == 1 && x.is_contiguous() &&
         x.storage()->bytes() == x.numel() * dtype_size(x.dtype());
}

Tensor reuse_or_empty(const Tensor& dy) {
  return is_unshared(dy) ? dy : empty_like(dy);
}

Tensor as_strided(const Tensor& x, Shape shape, Shape strides, int64_t offset) {
  return Tensor(x.storage(), std::move(shape), std::move(strides), offset, x.dtype());
}

}  // namespace chargrad
