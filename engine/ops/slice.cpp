// Parts of a tensor: narrow, slice, select, split, chunk; and parts joined: cat, stack.
#include <algorithm>

#include "engine/ops.h"
#include "engine/ops_common.h"
#include "engine/record_part.h"

namespace chargrad {
namespace {

// Indices start, start + step, ... of dim d, `length` of them, of a tensor of some strides.
struct Piece {
  Piece(const Tensor& x, Shape x_strides, int64_t d, int64_t start, int64_t length, int64_t step)
      : shape(x.shape()), strides(std::move(x_strides)) {
    const auto i = static_cast<size_t>(d);
    offset = length > 0 ? start * strides[i] : 0;
    shape[i] = length;
    strides[i] *= step;
  }

  Shape shape, strides;
  int64_t offset;
};

// The same as a view outside the graph.
Tensor piece(const Tensor& x, int64_t d, int64_t start, int64_t length, int64_t step) {
  const Piece p(x, x.strides(), d, start, length, step);
  return as_strided(x, p.shape, p.strides, x.storage_offset() + p.offset);
}

// The same, recorded: dx is zero but for the piece, which is dy.
Tensor recorded_piece(const char* op, const Tensor& x, int64_t d, int64_t start, int64_t length,
                      int64_t step) {
  const Piece in_dx(x, contiguous_strides(x.shape()), d, start, length, step);
  return record_part(op, piece(x, d, start, length, step), x, in_dx.strides, in_dx.offset);
}

void check_has_dims(const char* op, const Tensor& x) {
  CHARGRAD_CHECK(x.dim() > 0, op, ": a tensor of shape [] has no dim to take a part of");
}

}  // namespace

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  check_has_dims("narrow", x);
  const int64_t d = wrap_dim("narrow", x, dim), n = x.size(d);
  const int64_t begin = start < 0 ? start + n : start;
  CHARGRAD_CHECK(begin >= 0 && length >= 0 && begin <= n && length <= n - begin, "narrow: start ",
                 start, " and length ", length, " leave dim ", dim, " of shape ", x.shape());
  return recorded_piece("narrow", x, d, begin, length, 1);
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  check_has_dims("slice", x);
  CHARGRAD_CHECK(step >= 1, "slice: step must be at least 1, got ", step);
  const int64_t d = wrap_dim("slice", x, dim), n = x.size(d);
  const auto clamped = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t begin = clamped(start), stop = std::max(clamped(end), begin);
  const int64_t length = stop > begin ? (stop - begin - 1) / step + 1 : 0;
  return recorded_piece("slice", x, d, begin, length, std::min(step, std::max<int64_t>(n, 1)));
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  check_has_dims("select", x);
  const int64_t d = wrap_dim("select", x, dim), n = x.size(d);
  CHARGRAD_CHECK(index >= -n && index < n, "select: index ", index, " is out of range for dim ",
                 dim, " of shape ", x.shape());
  const int64_t at = index < 0 ? index + n : index;
  Shape shape = x.shape(), strides = x.strides();
  shape.erase(shape.begin() + d);
  strides.erase(strides.begin() + d);
  const Tensor y = as_strided(x, shape, strides, x.storage_offset() + at * x.stride(d));
  Shape in_dx = contiguous_strides(x.shape());
  const int64_t offset = at * in_dx[static_cast<size_t>(d)];
  in_dx.erase(in_dx.begin() + d);
  return record_part("select", y, x, in_dx, offset);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  check_has_dims("split", x);
  const int64_t d = wrap_dim("split", x, dim);
  int64_t total = 0;
  for (const int64_t size : sizes) {
    CHARGRAD_CHECK(size >= 0, "split: sizes must not be negative, got ", sizes);
    CHARGRAD_CHECK(!__builtin_add_overflow(total, size, &total), "split: too large sizes ", sizes);
  }
  CHARGRAD_CHECK(total == x.size(d), "split: sizes ", sizes, " must add up to dim ", dim,
                 " of shape ", x.shape());
  std::vector<Tensor> pieces;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    pieces.push_back(narrow(x, d, start, size));
    start += size;
  }
  return pieces;
}

std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim) {
  check_has_dims("split", x);
  const int64_t n = x.size(wrap_dim("split", x, dim));
  CHARGRAD_CHECK(split_size > 0, "split: split_size must be positive, got ", split_size);
  std::vector<int64_t> sizes;
  for (int64_t start = 0; start < n; start += split_size) {
    sizes.push_back(std::min(split_size, n - start));
  }
  return split(x, sizes.empty() ? std::vector<int64_t>{0} : sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  check_has_dims("chunk", x);
  CHARGRAD_CHECK(chunks > 0, "chunk: the number of chunks must be positive, got ", chunks);
  const int64_t n = x.size(wrap_dim("chunk", x, dim));
  return split(x, n > 0 ? (n - 1) / chunks + 1 : 1, dim);
}

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  CHARGRAD_CHECK(!tensors.empty(), "cat: at least one tensor is required");
  check_has_dims("cat", tensors[0]);
  const int64_t d = wrap_dim("cat", tensors[0], dim);
  Shape shape = tensors[0].shape();
  DType dtype = tensors[0].dtype();
  std::vector<int64_t> sizes;
  shape[static_cast<size_t>(d)] = 0;
  for (const Tensor& x : tensors) {
    Shape expected = x.shape();
    if (x.dim() == tensors[0].dim()) {
      expected[static_cast<size_t>(d)] = shape[static_cast<size_t>(d)];
    }
    CHARGRAD_CHECK(expected == shape, "cat: shapes must be equal outside dim ", dim, ", got ",
                   tensors[0].shape(), " and ", x.shape());
    sizes.push_back(x.size(d));
    shape[static_cast<size_t>(d)] += sizes.back();
    dtype = promote_types(dtype, x.dtype());
  }

  const Tensor y = empty(shape, dtype);
  int64_t start = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    copy_(piece(y, d, start, sizes[i], 1), tensors[i].detach());
    start += sizes[i];
  }
  return record("cat", y, tensors, save(), [sizes, d](const Tensor& dy, const Saved&) -> Grads {
    return split(dy, sizes, d);
  });
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  CHARGRAD_CHECK(!tensors.empty(), "stack: at least one tensor is required");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    CHARGRAD_CHECK(x.shape() == tensors[0].shape(), "stack: shapes must be equal, got ",
                   tensors[0].shape(), " and ", x.shape());
    const int64_t rank = x.dim() + 1;
    CHARGRAD_CHECK(dim >= -rank && dim < rank, "stack: dim ", dim, " is out of range for shape ",
                   x.shape());
    rows.push_back(unsqueeze(x, dim));
  }
  return cat(rows, dim);
}

}  // namespace chargrad
