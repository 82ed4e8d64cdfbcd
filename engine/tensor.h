// Tensor: a cheap handle to a strided view of shared memory, with its place in the graph of
// recorded ops. Names and meanings are PyTorch's. The ops themselves are free functions: ops.h.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dtype.h"
#include "engine/storage.h"

namespace chargrad {

using Shape = std::vector<int64_t>;

class Tensor;
struct Node;
struct TensorImpl;

// Receives a gradient; what it returns takes the gradient's place (an undefined tensor: no change).
using Hook = std::function<Tensor(const Tensor&)>;

// Number of elements of a shape; 1 for a scalar's [].
int64_t numel_of(const Shape& shape);

// Strides of a row-major tensor, in elements.
Shape contiguous_strides(const Shape& shape);

// Copying a Tensor copies the handle, not the data. Not thread-safe.
class Tensor {
 public:
  Tensor() = default;

  // A tensor over `storage`; strides and offset in elements. Requires: the view lies within.
  Tensor(std::shared_ptr<Storage> storage, Shape shape, Shape strides, int64_t offset, DType dtype);

  bool defined() const { return impl_ != nullptr; }

  const Shape& shape() const;
  const Shape& strides() const;
  // Both take negative dims, counted from the end, and throw when out of range.
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  int64_t dim() const;
  int64_t numel() const;
  DType dtype() const;
  bool is_contiguous() const;

  // First element. Writing through it does not raise the version: an in-place op calls
  // bump_version() itself. Throws unless S is the tensor's type.
  template <class S>
  S* data() const {
    check_dtype(dtype_of<S>);
    return static_cast<S*>(raw_data());
  }
  void* raw_data() const;
  const std::shared_ptr<Storage>& storage() const;
  int64_t storage_offset() const;

  // The only element's value; throws unless numel() is 1. item<int64_t>() is exact where a double
  // is not, beyond 2^53.
  double item() const { return item<double>(); }
  template <class S>
  S item() const;
  // The element at an index of dim() numbers, negative ones counted from the end.
  double item(const std::vector<int64_t>& index) const;
  // All elements in row-major order, converted to S.
  template <class S>
  std::vector<S> to_vector() const;

  // --- autograd -------------------------------------------------------------------------------
  bool requires_grad() const;
  // Throws for a non-floating tensor, or for switching off a tensor that an op made.
  Tensor& set_requires_grad(bool value = true);
  // True unless a recorded op made it.
  bool is_leaf() const;
  // Undefined until backward has reached this tensor.
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  // Fills the gradients of the leaves below. `gradient` has this tensor's shape and may be left
  // out for one element. Afterwards the graph is freed unless retain_graph.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;
  // The same data outside the graph; in-place changes of either are seen by both.
  Tensor detach() const;
  // Keeps the gradient of a tensor that an op made.
  void retain_grad() const;
  // Called with the whole gradient of this tensor in each backward.
  void register_hook(Hook hook) const;
  // In-place changes so far, shared by all views.
  uint64_t version() const;
  void bump_version() const;
  // The op that made this tensor, "" for a leaf.
  std::string_view grad_fn_name() const;
  const std::shared_ptr<Node>& grad_fn() const;

  // --- words that people type; each is the op of that name in ops.h -----------------------------
  Tensor view(const Shape& shape) const;
  Tensor reshape(const Shape& shape) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor contiguous() const;
  Tensor to(DType dtype) const;
  Tensor clone() const;
  Tensor select(int64_t dim, int64_t index) const;

  TensorImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<TensorImpl>& shared_impl() const { return impl_; }

 private:
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
  void check_dtype(DType wanted) const;
  TensorImpl& checked() const;

  std::shared_ptr<TensorImpl> impl_;

  friend struct TensorImpl;
};

// As PyTorch prints: 4 digits, aligned, summarised above 1,000 elements, with grad_fn or
// requires_grad where there is one: "tensor([0.5000, 0.2500], grad_fn=<SoftmaxBackward>)".
std::string to_string(const Tensor& x);

}  // namespace chargrad
