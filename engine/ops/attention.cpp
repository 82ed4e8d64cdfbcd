// scaled_dot_product_attention: the fused op.
#include "engine/kernels/attention.h"

#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

Shape leading_dims(const Tensor& x) {
  return Shape(x.shape().begin(), x.shape().end() - 2);
}

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  check_floating(kOp, q, "q");
  check_floating(kOp, k, "k");
  check_floating(kOp, v, "v");
  CHARGRAD_CHECK(q.dim() >= 2 && k.dim() == q.dim() && v.dim() == q.dim() &&
                     leading_dims(q) == leading_dims(k) && leading_dims(q) == leading_dims(v) &&
                     q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2),
                 kOp, ": shapes must be (..., T, D), (..., S, D), (..., S, E), got q ", q.shape(),
                 ", k ", k.shape(), " and v ", v.shape());
  CHARGRAD_CHECK(!(o.is_causal && o.attn_mask.defined()), kOp,
                 ": is_causal and attn_mask exclude each other, got a mask of shape ",
                 o.attn_mask.shape());
  CHARGRAD_CHECK(o.dropout_p >= 0 && o.dropout_p <= 1, kOp, ": dropout_p must be in [0, 1], got ",
                 o.dropout_p);
}

// The mask as numbers to add, (B, H, T, S) with stride 0 where it broadcasts, except in the last
// dim; undefined without one.
Tensor additive_mask(const Tensor& mask, const Shape& scores, DType dtype) {
  if (!mask.defined()) {
    return {};
  }
  CHARGRAD_CHECK(mask.dtype() == kBool || is_floating(mask.dtype()), kOp,
                 ": attn_mask must be bool or floating, got ", dtype_name(mask.dtype()));
  CHARGRAD_CHECK(broadcast_shapes(kOp, mask.shape(), scores) == scores, kOp,
                 ": attn_mask must broadcast to ", scores, ", got ", mask.shape());
  Tensor added = mask.detach();
  if (mask.dtype() == kBool) {
    added =
        where(added, zeros({}, dtype), full({}, -std::numeric_limits<double>::infinity(), dtype));
  }
  added = added.to(dtype);
  Shape last = added.shape();
  if (last.empty()) {
    last.push_back(1);
    added = added.reshape(last);
  }
  last.back() = scores.back();
  return expand(expand(added, last).contiguous(), scores);
}

template <class S>
kernels::HeadsView<const S> heads(const Tensor& x) {
  return {x.data<S>(), x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

template <class S>
kernels::AttentionArgs<S> kernel_args(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& mask, const AttentionOptions& o) {
  kernels::AttentionArgs<S> args;
  args.B = q.size(0);
  args.H = q.size(1);
  args.T = q.size(2);
  args.keys = k.size(2);
  args.D = q.size(3);
  args.E = v.size(3);
  args.q = heads<S>(q);
  args.k = heads<S>(k);
  args.v = heads<S>(v);
  if (mask.defined()) {
    args.mask = heads<S>(mask);
  }
  args.scale = static_cast<S>(*o.scale);
  args.is_causal = o.is_causal;
  args.dropout_p = o.dropout_p;
  args.key = o.key.value_or(DropoutKey());
  return args;
}

// q (B, H, T, D), k (B, H, S, D), v (B, H, S, E) of one dtype -> (B, H, T, E). The options have
// their scale and key, and no mask: that is `mask`, as additive_mask makes it.
//   With P the weights: dv = P^T dy, dS = P * (dy v^T - sum(dy * y)), dq = scale dS k,
//   dk = scale dS^T q.
Tensor attention_4d(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                    const AttentionOptions& options) {
  const Tensor y = empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype());
  const Tensor lse = empty({q.size(0), q.size(1), q.size(2)}, q.dtype());
  visit_floating(q.dtype(), [&]<class S>() {
    kernels::attention_forward(kernel_args<S>(q, k, v, mask, options), y.data<S>(), lse.data<S>());
  });
  AttentionOptions settings = options;
  settings.attn_mask = Tensor();
  return record(kOp, y, {q, k, v}, save(q, k, v, y, lse, mask),
                [settings](const Tensor& dy, const Saved& saved) -> Grads {
                  const Tensor &sq = saved[0], &sk = saved[1], &sv = saved[2];
                  const Tensor dq = empty_like(sq), dk = empty_like(sk), dv = empty_like(sv);
                  const Tensor dy_rows = dy.contiguous();
                  visit_floating(sq.dtype(), [&]<class S>() {
                    kernels::attention_backward(kernel_args<S>(sq, sk, sv, saved[5], settings),
                                                saved[3].data<S>(), saved[4].data<S>(),
                                                dy_rows.data<S>(), dq.data<S>(), dk.data<S>(),
                                                dv.data<S>());
                  });
                  return {dq, dk, dv};
                });
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  check_shapes(q, k, v, options);
  const DType common = promote_types(promote_types(q.dtype(), k.dtype()), v.dtype());
  const DType dtype = autocast_dtype().value_or(common);
  const bool rounded = dtype == kBFloat16;  // operands rounded, sums in float32, result rounded
  const DType computed = rounded ? kFloat32 : dtype;

  AttentionOptions resolved = options;
  if (!resolved.scale) {
    resolved.scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  }
  if (resolved.dropout_p > 0 && !resolved.key) {
    resolved.key = default_generator().next_dropout_key();
  }

  // Two dims of heads: leading dims beyond that are joined, missing ones are 1.
  const Shape leading = leading_dims(q);
  const int64_t H = leading.empty() ? 1 : leading.back();
  const int64_t B = leading.empty() ? 1 : numel_of(Shape(leading.begin(), leading.end() - 1));
  const auto operand = [&](const Tensor& x) {
    const Tensor t = rounded ? x.to(kBFloat16).to(kFloat32) : x.to(dtype);
    return t.dim() == 4 ? t : t.reshape({B, H, t.size(-2), t.size(-1)});
  };
  Shape scores = leading;
  scores.push_back(q.size(-2));
  scores.push_back(k.size(-2));
  Tensor mask = additive_mask(options.attn_mask, scores, computed);
  if (mask.defined() && mask.dim() != 4) {
    mask = mask.reshape({B, H, q.size(-2), k.size(-2)});
  }

  const Tensor y = attention_4d(operand(q), operand(k), operand(v), mask, resolved);
  Shape shape = leading;
  shape.push_back(q.size(-2));
  shape.push_back(v.size(-1));
  return (rounded ? y.to(kBFloat16) : y).reshape(shape);
}

}  // namespace chargrad
