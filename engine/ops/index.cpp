// Picking by int64 indices: index_select, gather, embedding.
#include "engine/kernels/index.h"

#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

void check_range(const char* op, const char* what, const Tensor& index, int64_t n) {
  const int64_t at = kernels::first_outside(index.data<int64_t>(), index.numel(), n);
  CHARGRAD_CHECK(at < 0, op, ": ", what, " ", index.data<int64_t>()[at], " at position ", at,
                 " is outside [0, ", n, ")");
}

// The `s.count` slices of x that index names, of shape `shape`.
// Requires: index and x are contiguous, index is in range.
Tensor select_rows(const kernels::Selection& s, const Tensor& x, const Tensor& index,
                   const Shape& shape) {
  Tensor y = empty(shape, x.dtype());
  visit_all(x.dtype(), [&]<class S>() {
    kernels::index_select<S>(s, index.data<int64_t>(), x.data<S>(), y.data<S>());
  });
  return y;
}

// The gradient adds the slices of dy up in one of the shape `from`; of index, which is saved first.
BackwardFn select_rows_backward(const kernels::Selection& s, const Shape& from) {
  return [s, from](const Tensor& dy, const Saved& saved) -> Grads {
    const Tensor up = contiguous(dy);
    Tensor dx = empty(from, dy.dtype());
    visit_floating(dy.dtype(), [&]<class S>() {
      kernels::index_select_backward<S>(s, saved[0].data<int64_t>(), up.data<S>(), dx.data<S>());
    });
    return {dx};
  };
}

// The space of `index`'s shape: dense values, index, and `x` (given by its strides) standing
// still in `dim`.
kernels::Strided<3> gather_space(const Tensor& index, const Shape& x_strides, int64_t dim) {
  Shape strides = x_strides;
  strides[static_cast<size_t>(dim)] = 0;
  return {index.shape(), {contiguous_strides(index.shape()), index.strides(), strides}};
}

}  // namespace

Tensor scatter_add(const Shape& shape, int64_t dim, const Tensor& index, const Tensor& dy) {
  Tensor dx = zeros(shape, dy.dtype());
  const Tensor up = contiguous(dy), places = contiguous(index);
  const auto space = gather_space(places, dx.strides(), dim);
  const int64_t slices = numel_of(Shape(index.shape().begin(), index.shape().begin() + dim));
  visit_floating(dy.dtype(), [&]<class S>() {
    kernels::gather_backward<S>(space, dx.stride(dim), slices, up.data<S>(), places.data<int64_t>(),
                                dx.data<S>());
  });
  return dx;
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  check_int64("index_select", index, "index");
  CHARGRAD_CHECK(index.dim() == 1, "index_select: index must have one dim, got shape ",
                 index.shape());
  CHARGRAD_CHECK(x.dim() > 0, "index_select: a tensor of shape [] has no dim to select from");
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [&](const Tensor& wide) { return index_select(wide, dim, index); });
  }
  const int64_t d = wrap_dim("index_select", x, dim);
  const Tensor ids = contiguous(index);
  check_range("index_select", "index", ids, x.size(d));
  Shape shape = x.shape();
  shape[static_cast<size_t>(d)] = ids.numel();
  const kernels::Selection s{numel_of(Shape(shape.begin(), shape.begin() + d)), x.size(d),
                             numel_of(Shape(shape.begin() + d + 1, shape.end())), ids.numel()};
  return record("index_select", select_rows(s, contiguous(x), ids, shape), {x}, save(ids),
                select_rows_backward(s, x.shape()));
}

Tensor embedding(const Tensor& ids, const Tensor& weight) {
  check_int64("embedding", ids, "ids");
  check_floating("embedding", weight, "weight");
  CHARGRAD_CHECK(weight.dim() == 2, "embedding: weight must be (V, C), got shape ", weight.shape());
  if (weight.dtype() == kBFloat16) {
    return via_float32(weight, [&](const Tensor& wide) { return embedding(ids, wide); });
  }
  const Tensor index = contiguous(ids);
  check_range("embedding", "id", index, weight.size(0));
  Shape shape = ids.shape();
  shape.push_back(weight.size(1));  // (..., C)
  const kernels::Selection s{1, weight.size(0), weight.size(1), index.numel()};
  const Tensor table = contiguous(weight);
  return record("embedding", select_rows(s, table, index, shape), {weight}, save(index, table),
                select_rows_backward(s, weight.shape()), [s, shape](const Saved& saved) {
                  return select_rows(s, saved[1], saved[0], shape);
                });
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_int64("gather", index, "index");
  CHARGRAD_CHECK(index.dim() == x.dim() && x.dim() > 0,
                 "gather: index and input must have equally many dims, at least one, got ",
                 index.shape(), " and ", x.shape());
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [&](const Tensor& wide) { return gather(wide, dim, index); });
  }
  const int64_t d = wrap_dim("gather", x, dim);
  for (int64_t i = 0; i < x.dim(); ++i) {
    CHARGRAD_CHECK(i == d || index.size(i) <= x.size(i),
                   "gather: index must not be larger than the input outside dim ", dim, ", got ",
                   index.shape(), " and ", x.shape());
  }
  const Tensor places = contiguous(index);
  check_range("gather", "index", places, x.size(d));
  Tensor y = empty(index.shape(), x.dtype());
  const auto space = gather_space(places, x.strides(), d);
  visit_all(x.dtype(), [&]<class S>() {
    kernels::gather<S>(space, x.stride(d), y.data<S>(), places.data<int64_t>(), x.data<S>());
  });
  return record("gather", y, {x}, save(places),
                [from = x.shape(), d](const Tensor& dy, const Saved& saved) -> Grads {
                  return {scatter_add(from, d, saved[0], dy)};
                });
}

}  // namespace chargrad
