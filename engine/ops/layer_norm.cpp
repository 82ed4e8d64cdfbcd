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

// A parameter as the kernels want it beside x: contiguous, float32 beside bfloat16.
Tensor parameter_beside(const Tensor& x, const Tensor& parameter) {
  const DType wide = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  if (!parameter.defined() || (parameter.dtype() == wide && parameter.is_contiguous())) {
    return parameter;
  }
  return parameter.detach().to(wide).contiguous();
}

struct Normalised {
  Tensor y, mean, rstd;
};

// x contiguous, the parameters as parameter_beside makes them; y in `dtype`.
Normalised forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                   DType dtype) {
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  const DType wide = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Normalised result{empty(x.shape(), dtype), empty({rows}, wide), empty({rows}, wide)};
  visit_mixed(x.dtype(), dtype, [&]<class X, class Y>() {
    using W = Wide<X>;
    kernels::layer_norm_forward(x.data<X>(), data_or_null<W>(weight), data_or_null<W>(bias), eps,
                                rows, cols, result.y.data<Y>(), result.mean.data<W>(),
                                result.rstd.data<W>());
  });
  return result;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_floating("layer_norm", x);
  CHARGRAD_CHECK(x.dim() > 0, "layer_norm: input must have a dim, got shape ", x.shape());
  CHARGRAD_CHECK(eps >= 0, "layer_norm: eps must not be negative, got ", eps);
  check_parameter("weight", weight, x);
  check_parameter("bias", bias, x);
  const Tensor in = x.contiguous(), w = parameter_beside(x, weight), b = parameter_beside(x, bias);
  const DType dtype = autocast_from(x.dtype());
  const auto [y, mean, rstd] = forward(in, w, b, eps, dtype);

  // With h = (x - mean) * rstd and g = dy * weight:
  //   dx = rstd * (g - mean g - h * mean(g * h)); dweight = sum dy * h; dbias = sum dy.
  return record(
      "layer_norm", y, {x, weight, bias}, save(in, w, b, mean, rstd).recompute(0, x),
      [](const Tensor& dy, const Saved& saved) -> Grads {
        const Tensor kept_x = saved[0], kept_w = saved[1], means = saved[3], rstds = saved[4];
        const Tensor up = dy.contiguous();
        const int64_t rows = means.numel(), cols = kept_x.size(-1);
        Grads grads(3);
        grads[0] = saved.needs_grad(0) ? saved.reuse_or_empty(kept_x) : Tensor();
        grads[1] = saved.needs_grad(1) ? empty({cols}, means.dtype()) : Tensor();
        grads[2] = saved.needs_grad(2) ? empty({cols}, means.dtype()) : Tensor();
        visit_mixed(kept_x.dtype(), dy.dtype(), [&]<class X, class Y>() {
          using W = Wide<X>;
          kernels::layer_norm_backward(kept_x.data<X>(), data_or_null<W>(kept_w), means.data<W>(),
                                       rstds.data<W>(), up.data<Y>(), rows, cols,
                                       data_or_null<X>(grads[0]), data_or_null<W>(grads[1]),
                                       data_or_null<W>(grads[2]));
        });
        return grads;
      },
      [eps, dtype](const Saved& saved) {
        return forward(saved[0], saved[1], saved[2], eps, dtype).y;
      });
}

}  // namespace chargrad
