#include "engine/packed_linear.h"

#include <algorithm>

#include "engine/ops.h"
#include "engine/ops/product.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// weight (out, in), transposed.
template <class S>
kernels::PackedMatrix<S> packed(const Tensor& weight) {
  return {weight.size(1), weight.size(0), {weight.data<S>(), weight.stride(1), weight.stride(0)}};
}

}  // namespace

PackedLinear::PackedLinear(const Tensor& weight, const Tensor& bias)
    : dtype_(autocast_from(weight.dtype())) {
  check_floating("PackedLinear", weight, "weight");
  CHARGRAD_CHECK(weight.dim() == 2, "PackedLinear: weight must have shape [out, in], got ",
                 weight.shape());
  CHARGRAD_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)},
                 "PackedLinear: bias must have shape [out], got bias ", bias.shape(),
                 " and weight ", weight.shape());
  out_ = weight.size(0);
  in_ = weight.size(1);
  const Tensor rounded = weight.detach().to(dtype_);
  if (dtype_ == kFloat32) {
    packed_ = packed<float>(rounded);
  } else if (dtype_ == kBFloat16) {
    packed_ = packed<bfloat16>(rounded);
  } else {
    weight_ = clone(rounded);
  }
  if (bias.defined()) {
    bias_ = clone(bias.detach()).to(sums_dtype(dtype_));
  }
}

Tensor PackedLinear::operator()(const Tensor& x) const {
  check_floating("PackedLinear", x, "x");
  CHARGRAD_CHECK(x.dim() >= 1 && x.size(-1) == in_,
                 "PackedLinear: the last dim of x must be weight's in, got x ", x.shape(),
                 " and weight ", Shape{out_, in_});
  CHARGRAD_CHECK(
      !(grad_enabled() && x.requires_grad()),
      "PackedLinear: it has no gradient and x requires one; use linear or a NoGradGuard");
  if (weight_.defined()) {
    return linear(x, weight_, bias_);
  }
  Shape shape = x.shape();
  shape.back() = out_;
  const Tensor rows = x.to(dtype_).contiguous();
  const int64_t row_count = numel_of(shape) / std::max<int64_t>(out_, 1);
  Tensor y = empty(shape, dtype_);
  const auto multiply = [&]<class S>(const kernels::PackedMatrix<S>& weight) {
    weight.multiply(row_count, {rows.data<S>(), in_, 1}, y.data<S>(), out_,
                    bias_.defined() ? bias_.data<kernels::BiasOf<S>>() : nullptr);
  };
  if (dtype_ == kFloat32) {
    multiply(std::get<kernels::PackedMatrix<float>>(packed_));
  } else {
    multiply(std::get<kernels::PackedMatrix<bfloat16>>(packed_));
  }
  return y;
}

}  // namespace chargrad
