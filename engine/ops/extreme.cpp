// Largest and smallest elements: amax, amin over any dims; max, min with indices along one dim;
// argmax.
#include "engine/kernels/reduce.h"
#include "engine/ops.h"
#include "engine/ops/reduced.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

// Calls f with S = float, double or int64_t.
template <class F>
void visit_ordered(DType dtype, F&& f) {
  if (dtype == kInt64) {
    f.template operator()<int64_t>();
  } else {
    visit_floating(dtype, f);
  }
}

// The dtype to compare in: bools as integers, bfloat16 as float32; both are exact.
DType comparable(DType dtype) {
  return dtype == kBool ? kInt64 : dtype == kBFloat16 ? kFloat32 : dtype;
}

Tensor extreme(const char* op, const Tensor& x, const std::vector<int64_t>& dims, bool keepdim,
               bool largest) {
  if (comparable(x.dtype()) != x.dtype()) {
    return to(extreme(op, to(x, comparable(x.dtype())), dims, keepdim, largest), x.dtype());
  }
  const ReducedShape shape(op, x, dims);
  const kernels::Reduction r(x.shape(), x.strides(), shape.dims);
  CHARGRAD_CHECK(r.count() > 0 || r.outputs() == 0, op, ": no element to choose from along dims ",
                 shape.dims, " of shape ", x.shape());
  Tensor y = empty(shape.result(keepdim), x.dtype());
  visit_ordered(x.dtype(), [&]<class S>() {
    (largest ? kernels::amax<S> : kernels::amin<S>)(r, x.data<S>(), y.data<S>());
  });

  // dx = dy / (number of equal extremes) at each of them.
  return record(op, y, {x}, save(x, y), [shape](const Tensor& dy, const Saved& saved) -> Grads {
    const Tensor& in = saved[0];
    const Shape kept = shape.result(/*keepdim=*/true);
    const Tensor chosen = to(eq(in, reshape(saved[1], kept)), in.dtype());
    const Tensor share = div(reshape(dy, kept), sum(chosen, shape.dims, /*keepdim=*/true));
    return {mul(chosen, share)};
  });
}

ValuesAndIndices with_index(const char* op, const Tensor& x, int64_t dim, bool keepdim,
                            bool largest) {
  if (comparable(x.dtype()) != x.dtype()) {
    const auto found = with_index(op, to(x, comparable(x.dtype())), dim, keepdim, largest);
    return {to(found.values, x.dtype()), found.indices};
  }
  const int64_t d = wrap_dim(op, x, dim);
  if (x.dim() == 0) {
    return with_index(op, reshape(x, {1}), 0, /*keepdim=*/false, largest);
  }
  const ReducedShape shape(op, x, {d});
  const kernels::Reduction r(x.shape(), x.strides(), shape.dims);
  CHARGRAD_CHECK(r.count() > 0 || r.outputs() == 0, op, ": no element to choose from along dim ",
                 dim, " of shape ", x.shape());
  Tensor y = empty(shape.result(keepdim), x.dtype());
  const Tensor index = empty(y.shape(), kInt64);
  visit_ordered(x.dtype(), [&]<class S>() {
    (largest ? kernels::max_index<S> : kernels::min_index<S>)(r.kept, x.size(d), x.stride(d),
                                                              x.data<S>(), y.data<S>(),
                                                              index.data<int64_t>());
  });

  // dx = dy at the chosen element.
  y = record(op, y, {x}, save(index), [shape, d](const Tensor& dy, const Saved& saved) -> Grads {
    const Shape kept = shape.result(/*keepdim=*/true);
    return {scatter_add(shape.input, d, reshape(saved[0], kept), reshape(dy, kept))};
  });
  return {y, index};
}

}  // namespace

Tensor amax(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  return extreme("amax", x, dims, keepdim, /*largest=*/true);
}

Tensor amin(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  return extreme("amin", x, dims, keepdim, /*largest=*/false);
}

ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  return with_index("max", x, dim, keepdim, /*largest=*/true);
}

ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  return with_index("min", x, dim, keepdim, /*largest=*/false);
}

Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) {
  const NoGradGuard no_grad;
  return with_index("argmax", x, dim, keepdim, /*largest=*/true).indices;
}

Tensor argmax(const Tensor& x) {
  const NoGradGuard no_grad;
  return argmax(reshape(x, {-1}), 0);
}

}  // namespace chargrad
