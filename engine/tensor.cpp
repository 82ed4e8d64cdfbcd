#include "engine/tensor.h"

#include "engine/autograd.h"
#include "engine/node.h"
#include "engine/ops.h"
#include "engine/tensor_impl.h"

namespace chargrad {

int64_t numel_of(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) {
    CHARGRAD_CHECK(size >= 0, "shape: sizes must not be negative, got ", shape);
    CHARGRAD_CHECK(!__builtin_mul_overflow(n, size, &n), "shape: too many elements in ", shape);
  }
  return n;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
  return strides;
}

namespace {

// Strides of dims of size 1 are never used, so they do not count.
bool is_row_major(const Shape& shape, const Shape& strides) {
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) {
      return true;
    }
    if (shape[i] != 1 && strides[i] != step) {
      return false;
    }
    step *= shape[i];
  }
  return true;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, Shape shape, Shape strides, int64_t offset,
               DType dtype)
    : impl_(std::make_shared<TensorImpl>()) {
  impl_->storage = std::move(storage);
  impl_->numel = numel_of(shape);
  impl_->contiguous = is_row_major(shape, strides);
  impl_->shape = std::move(shape);
  impl_->strides = std::move(strides);
  impl_->offset = offset;
  impl_->dtype = dtype;
}

TensorImpl& Tensor::checked() const {
  CHARGRAD_CHECK(impl_ != nullptr, "tensor: used before it was given a value");
  return *impl_;
}

const Shape& Tensor::shape() const {
  return checked().shape;
}
const Shape& Tensor::strides() const {
  return checked().strides;
}
int64_t Tensor::dim() const {
  return static_cast<int64_t>(checked().shape.size());
}
int64_t Tensor::numel() const {
  return checked().numel;
}
DType Tensor::dtype() const {
  return checked().dtype;
}
bool Tensor::is_contiguous() const {
  return checked().contiguous;
}
const std::shared_ptr<Storage>& Tensor::storage() const {
  return checked().storage;
}
int64_t Tensor::storage_offset() const {
  return checked().offset;
}

namespace {

size_t wrapped(const char* what, int64_t dim, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  CHARGRAD_CHECK(dim >= -rank && dim < rank, what, ": dim ", dim, " is out of range for shape ",
                 shape);
  return static_cast<size_t>(dim < 0 ? dim + rank : dim);
}

}  // namespace

int64_t Tensor::size(int64_t dim) const {
  return shape()[wrapped("size", dim, shape())];
}
int64_t Tensor::stride(int64_t dim) const {
  return strides()[wrapped("stride", dim, shape())];
}

void Tensor::check_dtype(DType wanted) const {
  CHARGRAD_CHECK(dtype() == wanted, "data: the tensor is ", dtype_name(dtype()), ", read as ",
                 dtype_name(wanted));
}

void* Tensor::raw_data() const {
  const TensorImpl& impl = checked();
  return impl.storage->data() + impl.offset * dtype_size(impl.dtype);
}

template <class S>
S Tensor::item() const {
  CHARGRAD_CHECK(numel() == 1, "item: one element is required, got shape ", shape());
  return visit_all(dtype(), [this]<class T>() { return static_cast<S>(*this->data<T>()); });
}
template float Tensor::item<float>() const;
template double Tensor::item<double>() const;
template int64_t Tensor::item<int64_t>() const;
template bool Tensor::item<bool>() const;

double Tensor::item(const std::vector<int64_t>& index) const {
  CHARGRAD_CHECK(index.size() == shape().size(), "item: the index ", index,
                 " must have one number per dim of shape ", shape());
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    const int64_t size = shape()[i];
    CHARGRAD_CHECK(index[i] >= -size && index[i] < size, "item: index ", index,
                   " is out of range for shape ", shape());
    at += (index[i] < 0 ? index[i] + size : index[i]) * strides()[i];
  }
  return visit_all(dtype(), [this, at]<class S>() { return static_cast<double>(data<S>()[at]); });
}

template <class S>
std::vector<S> Tensor::to_vector() const {
  const NoGradGuard no_grad;
  const Tensor source = contiguous();
  std::vector<S> result(static_cast<size_t>(numel()));
  visit_all(dtype(), [&]<class T>() {
    const T* x = source.data<T>();
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = static_cast<S>(x[i]);
    }
  });
  return result;
}
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;

bool Tensor::requires_grad() const {
  return checked().requires_grad || impl_->grad_fn != nullptr;
}

bool Tensor::is_leaf() const {
  return checked().grad_fn == nullptr;
}

Tensor& Tensor::set_requires_grad(bool value) {
  TensorImpl& impl = checked();
  CHARGRAD_CHECK(!value || is_floating(impl.dtype),
                 "set_requires_grad: only floating tensors have gradients, got ",
                 dtype_name(impl.dtype));
  CHARGRAD_CHECK(value || !impl.grad_fn,
                 "set_requires_grad: an op made this tensor; use detach() to leave the graph");
  impl.requires_grad = value;
  return *this;
}

Tensor Tensor::grad() const {
  return checked().grad;
}

void Tensor::set_grad(const Tensor& grad) const {
  TensorImpl& impl = checked();
  if (grad.defined()) {
    CHARGRAD_CHECK(grad.shape() == impl.shape && grad.dtype() == impl.dtype,
                   "set_grad: the gradient must be ", dtype_name(impl.dtype), " of shape ",
                   impl.shape, ", got ", dtype_name(grad.dtype()), " of shape ", grad.shape());
    impl.grad = grad.detach();
  } else {
    impl.grad = grad;
  }
}

Tensor Tensor::detach() const {
  const TensorImpl& impl = checked();
  return Tensor(impl.storage, impl.shape, impl.strides, impl.offset, impl.dtype);
}

void Tensor::retain_grad() const {
  CHARGRAD_CHECK(requires_grad(), "retain_grad: the tensor does not require grad");
  if (impl_->grad_fn) {
    impl_->grad_fn->retain_grad = impl_;
  }
}

void Tensor::register_hook(Hook hook) const {
  CHARGRAD_CHECK(requires_grad(), "register_hook: the tensor does not require grad");
  (impl_->grad_fn ? impl_->grad_fn->hooks : impl_->hooks).push_back(std::move(hook));
}

uint64_t Tensor::version() const {
  return checked().storage->version();
}
void Tensor::bump_version() const {
  checked().storage->bump_version();
}

std::string_view Tensor::grad_fn_name() const {
  return checked().grad_fn ? std::string_view(impl_->grad_fn->op) : std::string_view();
}

const std::shared_ptr<Node>& Tensor::grad_fn() const {
  return checked().grad_fn;
}

Tensor Tensor::view(const Shape& shape) const {
  return chargrad::view(*this, shape);
}
Tensor Tensor::reshape(const Shape& shape) const {
  return chargrad::reshape(*this, shape);
}
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  return chargrad::transpose(*this, dim0, dim1);
}
Tensor Tensor::contiguous() const {
  return chargrad::contiguous(*this);
}
Tensor Tensor::to(DType dtype) const {
  return chargrad::to(*this, dtype);
}
Tensor Tensor::clone() const {
  return chargrad::clone(*this);
}
Tensor Tensor::select(int64_t dim, int64_t index) const {
  return chargrad::select(*this, dim, index);
}

}  // namespace chargrad
