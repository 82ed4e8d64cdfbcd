#include "engine/kernels/layer_norm.h"

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

void check_parameter(const char* name, const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) {
    return;
  }
  CHARGRAD_CHECK(parameter.shape() == Shape{x.size(-1)}, "layer_norm: ", name, " must have shape [",
                 x.size(-1), "], got ", parameter.shape());
  CHARGRAD_CHECK(
      parameter.dtype() == x.dtype() || (x.dtype() == kBFloat16 && parameter.dtype() == kFloat32),
      "layer_norm: ", name, " must be ", dtype_name(x.dtype()), " as the input, got ",
      dtype_name(parameter.dtype()));
}

// The elements of an optional parameter, null for none.
template <class S>
S* data_or_null(const Tensor& parameter) {
  return parameter.defined() ? parameter.data<S>() : nullptr;
}

Tensor contiguous_or_none(const Tensor& parameter) {
  return parameter.defined() ? parameter.contiguous() : parameter;
}

Tensor float32_or_none(const Tensor& parameter) {
  return parameter.defined() ? parameter.to(kFloat32) : parameter;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_floating("layer_norm", x);
  CHARGRAD_CHECK(x.dim() > 0, "layer_norm: input must have a dim, got shape ", x.shape());
  CHARGRAD_CHECK(eps >= 0, "layer_norm: eps must not be negative, got ", eps);
  check_parameter("weight", weight, x);
  check_parameter("bias", bias, x);
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [&](const Tensor& wide) {
      return layer_norm(wide, float32_or_none(weight), float32_or_none(bias), eps);
    });
  }
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  const Tensor in = x.contiguous(), w = contiguous_or_none(weight), b = contiguous_or_none(bias);
  const Tensor y = empty_like(x);
  const Tensor mean = empty({rows}, x.dtype()), rstd = empty({rows}, x.dtype());
  visit_floating(x.dtype(), [&]<class S>() {
    kernels::layer_norm_forward<S>(in.data<S>(), data_or_null<S>(w), data_or_null<S>(b), eps, rows,
                                   cols, y.data<S>(), mean.data<S>(), rstd.data<S>());
  });

  // With h = (x - mean) * rstd and g = dy * weight:
  //   dx = rstd * (g - mean g - h * mean(g * h)); dweight = sum dy * h; dbias = sum dy.
  return record("layer_norm", y, {x, weight, bias}, save(in, w, mean, rstd),
                [rows, cols](const Tensor& dy, const Saved& saved) -> Grads {
                  const Tensor up = dy.contiguous();
                  const DType dtype = up.dtype();
                  Grads grads(3);
                  grads[0] = saved.needs_grad(0) ? empty_like(up) : Tensor();
                  grads[1] = saved.needs_grad(1) ? empty({cols}, dtype) : Tensor();
                  grads[2] = saved.needs_grad(2) ? empty({cols}, dtype) : Tensor();
                  visit_floating(dtype, [&]<class S>() {
                    kernels::layer_norm_backward<S>(
                        saved[0].data<S>(), data_or_null<S>(saved[1]), saved[2].data<S>(),
                        saved[3].data<S>(), up.data<S>(), rows, cols, data_or_null<S>(grads[0]),
                        data_or_null<S>(grads[1]), data_or_null<S>(grads[2]));
                  });
                  return grads;
                });
}

}  // namespace chargrad
