// Tensors out of nothing: empty, constants, ranges, listed numbers.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <stdexcept>

#include "engine/check.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

std::shared_ptr<Storage> storage_for(const Shape& shape, int64_t bytes) {
  try {
    return std::make_shared<Storage>(bytes);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(
        fmt::format("tensor: out of memory, cannot allocate {} bytes for shape {}", bytes, shape));
  }
}

}  // namespace

Tensor empty(const Shape& shape, DType dtype) {
  int64_t bytes = 0;
  CHARGRAD_CHECK(!__builtin_mul_overflow(numel_of(shape), dtype_size(dtype), &bytes),
                 "shape: too many bytes in ", shape);
  return Tensor(storage_for(shape, bytes), shape, contiguous_strides(shape), 0, dtype);
}

Tensor empty_like(const Tensor& x) {
  return empty(x.shape(), x.dtype());
}

namespace {

Tensor filled(const char* op, const Shape& shape, double value, DType dtype) {
  check_fits(op, value, dtype);
  Tensor y = empty(shape, dtype);
  visit_all(dtype, [&]<class S>() { std::fill_n(y.data<S>(), y.numel(), static_cast<S>(value)); });
  return y;
}

}  // namespace

Tensor full(const Shape& shape, double value, DType dtype) {
  return filled("full", shape, value, dtype);
}

Tensor zeros(const Shape& shape, DType dtype) {
  return full(shape, 0, dtype);
}
Tensor ones(const Shape& shape, DType dtype) {
  return full(shape, 1, dtype);
}
Tensor zeros_like(const Tensor& x) {
  return full(x.shape(), 0, x.dtype());
}
Tensor ones_like(const Tensor& x) {
  return full(x.shape(), 1, x.dtype());
}
Tensor full_like(const Tensor& x, double value) {
  return filled("full_like", x.shape(), value, x.dtype());
}

Tensor arange(double end, DType dtype) {
  return arange(0, end, 1, dtype);
}

Tensor arange(double start, double end, double step, DType dtype) {
  CHARGRAD_CHECK(dtype != kBool, "arange: the dtype must not be bool");
  CHARGRAD_CHECK(step != 0 && (end - start) / step >= 0,
                 "arange: end must lie on step's side of start, got start ", start, ", end ", end,
                 ", step ", step);
  const double size = std::ceil((end - start) / step);
  CHARGRAD_CHECK(size < 0x1p53 && std::abs(start) < 0x1p63 && std::abs(end) < 0x1p63,
                 "arange: too large a range, got start ", start, ", end ", end, ", step ", step);
  Tensor y = empty({static_cast<int64_t>(size)}, dtype);
  visit_all(dtype, [&]<class S>() {
    S* out = y.data<S>();
    for (int64_t i = 0; i < y.numel(); ++i) {
      out[i] = static_cast<S>(start + static_cast<double>(i) * step);
    }
  });
  return y;
}

Tensor eye(int64_t n, std::optional<int64_t> m, DType dtype) {
  const int64_t cols = m.value_or(n);
  Tensor y = zeros({n, cols}, dtype);
  visit_all(dtype, [&]<class S>() {
    S* out = y.data<S>();
    for (int64_t i = 0; i < std::min(n, cols); ++i) {
      out[i * cols + i] = static_cast<S>(1);
    }
  });
  return y;
}

namespace {

template <class S>
Tensor copied(const char* op, const std::vector<S>& values, const Shape& shape, DType dtype) {
  if constexpr (is_floating(dtype_of<S>)) {
    for (const S value : values) {
      check_fits(op, value, dtype);
    }
  }
  Tensor y = empty(shape, dtype);
  visit_all(dtype, [&]<class T>() {
    std::transform(values.begin(), values.end(), y.data<T>(),
                   [](const auto& value) { return static_cast<T>(static_cast<S>(value)); });
  });
  return y;
}

}  // namespace

template <class S>
Tensor from_vector(const std::vector<S>& values, const Shape& shape, DType dtype) {
  CHARGRAD_CHECK(static_cast<int64_t>(values.size()) == numel_of(shape), "from_vector: shape ",
                 shape, " needs ", numel_of(shape), " values, got ", values.size());
  return copied("from_vector", values, shape, dtype);
}

template <class S>
Tensor from_vector(const std::vector<S>& values, const Shape& shape) {
  return from_vector(values, shape, dtype_of<S>);
}

template Tensor from_vector(const std::vector<float>&, const Shape&);
template Tensor from_vector(const std::vector<double>&, const Shape&);
template Tensor from_vector(const std::vector<bfloat16>&, const Shape&);
template Tensor from_vector(const std::vector<int64_t>&, const Shape&);
template Tensor from_vector(const std::vector<bool>&, const Shape&);
template Tensor from_vector(const std::vector<float>&, const Shape&, DType);
template Tensor from_vector(const std::vector<double>&, const Shape&, DType);
template Tensor from_vector(const std::vector<bfloat16>&, const Shape&, DType);
template Tensor from_vector(const std::vector<int64_t>&, const Shape&, DType);
template Tensor from_vector(const std::vector<bool>&, const Shape&, DType);

Tensor scalar(double value, DType dtype) {
  return filled("scalar", {}, value, dtype);
}

template <class>
Tensor tensor(std::initializer_list<double> values, DType dtype) {
  return copied("tensor", std::vector<double>(values), {static_cast<int64_t>(values.size())},
                dtype);
}
template Tensor tensor<void>(std::initializer_list<double>, DType);

Tensor tensor(std::initializer_list<std::initializer_list<double>> rows, DType dtype) {
  if (rows.size() == 0) {
    return empty({0}, dtype);  // tensor({})
  }
  const size_t cols = rows.begin()->size();
  std::vector<double> values;
  for (const auto& row : rows) {
    CHARGRAD_CHECK(row.size() == cols, "tensor: rows must be equally long, got ", cols, " and ",
                   row.size());
    values.insert(values.end(), row.begin(), row.end());
  }
  return copied("tensor", values, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(cols)},
                dtype);
}

}  // namespace chargrad
