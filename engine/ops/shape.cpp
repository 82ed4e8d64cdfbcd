// Views under other shapes: view, reshape, transpose, permute, squeeze, unsqueeze, expand, flatten.
#include <algorithm>
#include <optional>

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// `shape` with its -1, if any, replaced by what numel leaves for it.
Shape resolve_shape(const char* op, const Tensor& x, const Shape& shape) {
  Shape resolved = shape;
  int64_t known = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < shape.size(); ++i) {
    CHARGRAD_CHECK(shape[i] >= -1 && !(shape[i] == -1 && open), op,
                   ": at most one size may be -1 and none below, got ", shape);
    if (shape[i] == -1) {
      open = i;
    } else {
      CHARGRAD_CHECK(!__builtin_mul_overflow(known, shape[i], &known), op,
                     ": too many elements in shape ", shape);
    }
  }
  if (open && known != 0 && x.numel() % known == 0) {
    resolved[*open] = x.numel() / known;
    known = x.numel();
  }
  CHARGRAD_CHECK(known == x.numel() && (!open || resolved[*open] != -1), op,
                 ": the number of elements must stay the same, got shape ", x.shape(), " as ",
                 shape);
  return resolved;
}

// The strides under which x's memory has that shape, if there are any: each run of dims of x
// that lies in memory as one may be cut anew.
std::optional<Shape> view_strides(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) {
    return contiguous_strides(shape);
  }
  Shape strides(shape.size());
  size_t to = shape.size();  // dims of `shape` from here on are done
  size_t from = x.shape().size();
  while (from > 0) {
    // One run of x: dims [start, from).
    size_t start = from - 1;
    int64_t run = x.shape()[start];
    int64_t step = x.strides()[start];
    while (start > 0 &&
           (x.shape()[start - 1] == 1 || run == 1 || x.strides()[start - 1] == run * step)) {
      --start;
      step = run == 1 && x.shape()[start] != 1 ? x.strides()[start] : step;
      run *= x.shape()[start];
    }
    // The dims of `shape` that make up the same number of elements.
    int64_t taken = 1;
    while (to > 0 && (taken < run || shape[to - 1] == 1)) {
      --to;
      strides[to] = step * taken;
      taken *= shape[to];
    }
    if (taken != run) {
      return std::nullopt;
    }
    from = start;
  }
  return to == 0 ? std::optional(strides) : std::nullopt;
}

// x under a shape and strides; the gradient goes back to x's shape.
Tensor recorded_view(const char* op, const Tensor& x, Shape shape, Shape strides) {
  const Tensor y = as_strided(x, std::move(shape), std::move(strides), x.storage_offset());
  return record(op, y, {x}, save(), [before = x.shape()](const Tensor& dy, const Saved&) -> Grads {
    return {reshape(dy, before)};
  });
}

}  // namespace

Tensor view(const Tensor& x, const Shape& shape) {
  const Shape resolved = resolve_shape("view", x, shape);
  const std::optional<Shape> strides = view_strides(x, resolved);
  CHARGRAD_CHECK(strides.has_value(), "view: shape ", x.shape(), " with strides ", x.strides(),
                 " cannot be seen as ", shape, " without a copy; use reshape");
  return recorded_view("view", x, resolved, *strides);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape resolved = resolve_shape("reshape", x, shape);
  if (resolved == x.shape()) {
    return x;
  }
  const std::optional<Shape> strides = view_strides(x, resolved);
  return strides ? recorded_view("reshape", x, resolved, *strides)
                 : reshape(contiguous(x), resolved);
}

Tensor permute(const Tensor& x, const std::vector<int64_t>& dims) {
  CHARGRAD_CHECK(static_cast<int64_t>(dims.size()) == x.dim(),
                 "permute: every dim must be named once, got ", dims, " for shape ", x.shape());
  std::vector<int64_t> order, back(dims.size(), -1);
  Shape shape, strides;
  for (const int64_t dim : dims) {
    const int64_t d = wrap_dim("permute", x, dim);
    CHARGRAD_CHECK(back[static_cast<size_t>(d)] == -1,
                   "permute: every dim must be named once, got ", dims, " for shape ", x.shape());
    back[static_cast<size_t>(d)] = static_cast<int64_t>(order.size());
    order.push_back(d);
    shape.push_back(x.size(d));
    strides.push_back(x.stride(d));
  }
  const Tensor y = as_strided(x, std::move(shape), std::move(strides), x.storage_offset());
  return record("permute", y, {x}, save(),
                [back](const Tensor& dy, const Saved&) -> Grads { return {permute(dy, back)}; });
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  const auto d0 = static_cast<size_t>(wrap_dim("transpose", x, dim0));
  const auto d1 = static_cast<size_t>(wrap_dim("transpose", x, dim1));
  Shape shape = x.shape(), strides = x.strides();
  if (!shape.empty()) {
    std::swap(shape[d0], shape[d1]);
    std::swap(strides[d0], strides[d1]);
  }
  const Tensor y = as_strided(x, std::move(shape), std::move(strides), x.storage_offset());
  return record("transpose", y, {x}, save(), [dim0, dim1](const Tensor& dy, const Saved&) -> Grads {
    return {transpose(dy, dim0, dim1)};
  });
}

Tensor squeeze(const Tensor& x) {
  Shape shape, strides;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    if (x.shape()[i] != 1) {
      shape.push_back(x.shape()[i]);
      strides.push_back(x.strides()[i]);
    }
  }
  return recorded_view("squeeze", x, shape, strides);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  const int64_t d = wrap_dim("squeeze", x, dim);
  if (x.dim() == 0 || x.size(d) != 1) {
    return x;
  }
  Shape shape = x.shape(), strides = x.strides();
  shape.erase(shape.begin() + d);
  strides.erase(strides.begin() + d);
  return recorded_view("squeeze", x, shape, strides);
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const int64_t rank = x.dim() + 1;
  CHARGRAD_CHECK(dim >= -rank && dim < rank, "unsqueeze: dim ", dim, " is out of range for shape ",
                 x.shape());
  const int64_t d = dim < 0 ? dim + rank : dim;
  Shape shape = x.shape(), strides = x.strides();
  const int64_t stride = d < x.dim() ? x.size(d) * x.stride(d) : 1;
  shape.insert(shape.begin() + d, 1);
  strides.insert(strides.begin() + d, stride);
  return recorded_view("unsqueeze", x, shape, strides);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  CHARGRAD_CHECK(shape.size() >= x.shape().size(), "expand: shape ", x.shape(),
                 " has more dims than ", shape);
  const size_t front = shape.size() - x.shape().size();
  Shape wide = shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_new = i < front;
    const int64_t size = is_new ? 1 : x.shape()[i - front];
    wide[i] = shape[i] == -1 && !is_new ? size : shape[i];
    CHARGRAD_CHECK(wide[i] >= 0 && (size == 1 || wide[i] == size), "expand: shape ", x.shape(),
                   " cannot be expanded to ", shape);
  }
  const Tensor y = as_strided(x, wide, broadcast_strides(x, wide), x.storage_offset());
  return record("expand", y, {x}, save(),
                [before = x.shape()](const Tensor& dy, const Saved&) -> Grads {
                  return {sum_to(dy, before)};
                });
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  const int64_t first = wrap_dim("flatten", x, start), last = wrap_dim("flatten", x, end);
  CHARGRAD_CHECK(first <= last, "flatten: start ", start, " must not come after end ", end,
                 " in shape ", x.shape());
  Shape shape;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (i <= first || i > last) {
      shape.push_back(x.size(i));
    } else {
      shape.back() *= x.size(i);
    }
  }
  return reshape(x, x.dim() == 0 ? Shape{1} : shape);
}

}  // namespace chargrad
