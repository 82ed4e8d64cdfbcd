// scaled_dot_product_attention, on heads and on packed queries, keys and values.
#include "engine/kernels/attention.h"

#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";
constexpr const char* kPackedOp = "scaled_dot_product_attention_packed";

Shape leading_dims(const Tensor& x) {
  return Shape(x.shape().begin(), x.shape().end() - 2);
}

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_floating(kOp, q, "q");
  check_floating(kOp, k, "k");
  check_floating(kOp, v, "v");
  CHARGRAD_CHECK(q.dim() >= 2 && k.dim() == q.dim() && v.dim() == q.dim() &&
                     leading_dims(q) == leading_dims(k) && leading_dims(q) == leading_dims(v) &&
                     q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2),
                 kOp, ": shapes must be (..., T, D), (..., S, D), (..., S, E), got q ", q.shape(),
                 ", k ", k.shape(), " and v ", v.shape());
}

void check_options(const char* op, const AttentionOptions& o) {
  CHARGRAD_CHECK(!(o.is_causal && o.attn_mask.defined()), op,
                 ": is_causal and attn_mask exclude each other, got a mask of shape ",
                 o.attn_mask.shape());
  CHARGRAD_CHECK(o.dropout_p >= 0 && o.dropout_p <= 1, op, ": dropout_p must be in [0, 1], got ",
                 o.dropout_p);
}

// What scores and sums are kept in.
DType computed_dtype(DType dtype) {
  return dtype == kBFloat16 ? kFloat32 : dtype;
}

// The mask as numbers to add, (B, H, T, S) with stride 0 where it broadcasts, except in the last
// dim; undefined without one.
Tensor additive_mask(const char* op, const Tensor& mask, const Shape& scores, DType dtype) {
  if (!mask.defined()) {
    return {};
  }
  CHARGRAD_CHECK(mask.dtype() == kBool || is_floating(mask.dtype()), op,
                 ": attn_mask must be bool or floating, got ", dtype_name(mask.dtype()));
  CHARGRAD_CHECK(broadcast_shapes(op, mask.shape(), scores) == scores, op,
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

// Memory for a result of this shape (B, H, T, D) that lies as (B, T, H, D), so that the way back to
// (B, T, H * D) is a view.
Tensor empty_heads(const Shape& shape, DType dtype) {
  return empty({shape[0], shape[2], shape[1], shape[3]}, dtype).transpose(1, 2);
}

template <class S>
kernels::HeadsView<const S> heads(const Tensor& x) {
  return {x.data<S>(), x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

template <class S>
kernels::HeadsView<S> heads_out(const Tensor& x) {
  return {x.data<S>(), x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

// q (B, H, T, D), k (B, H, S, D) and v (B, H, S, E), any strides, and their gradients, stride 1 in
// the last dim.
struct Operands {
  Tensor q, k, v;
};

template <class S>
kernels::AttentionArgs<S> kernel_args(const Operands& x, const Tensor& mask,
                                      const AttentionOptions& o) {
  kernels::AttentionArgs<S> args;
  args.B = x.q.size(0);
  args.H = x.q.size(1);
  args.T = x.q.size(2);
  args.keys = x.k.size(2);
  args.D = x.q.size(3);
  args.E = x.v.size(3);
  args.q = heads<S>(x.q);
  args.k = heads<S>(x.k);
  args.v = heads<S>(x.v);
  if (mask.defined()) {
    args.mask = heads<Wide<S>>(mask);
  }
  args.scale = static_cast<Wide<S>>(*o.scale);
  args.is_causal = o.is_causal;
  args.dropout_p = o.dropout_p;
  args.key = o.key.value_or(DropoutKey());
  return args;
}

// Fills y (B, H, T, E), stride 1 in the last dim, and returns lse (B, H, T). The options have their
// scale and key, and no mask: that is `mask`, as additive_mask makes it.
Tensor forward(const Operands& x, const Tensor& mask, const AttentionOptions& options,
               const Tensor& y) {
  Tensor lse = empty({x.q.size(0), x.q.size(1), x.q.size(2)}, computed_dtype(y.dtype()));
  visit_any_floating(y.dtype(), [&]<class S>() {
    kernels::attention_forward(kernel_args<S>(x, mask, options), heads_out<S>(y),
                               lse.data<Wide<S>>());
  });
  return lse;
}

// What forward left, and the gradient of y.
struct Result {
  Tensor y, lse, dy;
};

// With P the weights: dv = P^T dy, dS = P * (dy v^T - sum(dy * y)), dq = scale dS k,
// dk = scale dS^T q.
void backward(const Operands& x, const Tensor& mask, const AttentionOptions& options,
              const Result& result, const Operands& grads) {
  const Tensor dy = result.dy.stride(3) == 1 ? result.dy : result.dy.contiguous();
  visit_any_floating(dy.dtype(), [&]<class S>() {
    kernels::attention_backward<S>(
        kernel_args<S>(x, mask, options),
        {heads<S>(result.y), heads<S>(dy), result.lse.data<Wide<S>>()},
        {heads_out<S>(grads.q), heads_out<S>(grads.k), heads_out<S>(grads.v)});
  });
}

// The options that backward needs: the mask is saved apart.
AttentionOptions without_mask(const AttentionOptions& options) {
  AttentionOptions result = options;
  result.attn_mask = Tensor();
  return result;
}

// As the op, of four dims and one dtype, with scale and key set.
Tensor attention_4d(const Operands& x, const Tensor& mask, const AttentionOptions& options) {
  const Tensor y = empty_heads({x.q.size(0), x.q.size(1), x.q.size(2), x.v.size(3)}, x.q.dtype());
  const Tensor lse = forward(x, mask, options, y);
  return record(kOp, y, {x.q, x.k, x.v}, save(x.q, x.k, x.v, mask, y, lse),
                [settings = without_mask(options)](const Tensor& dy, const Saved& saved) -> Grads {
                  const Operands in{saved[0], saved[1], saved[2]};
                  const Operands d{empty_heads(in.q.shape(), dy.dtype()),
                                   empty_heads(in.k.shape(), dy.dtype()),
                                   empty_heads(in.v.shape(), dy.dtype())};
                  backward(in, saved[3], settings, {saved[4], saved[5], dy}, d);
                  return {d.q, d.k, d.v};
                });
}

// The heads of qkv (B, T, 3 C), or of its gradient, in place: views (B, H, T, C / H).
Operands heads_of_packed(const Tensor& qkv, int64_t n_head) {
  const int64_t B = qkv.size(0), T = qkv.size(1), C = qkv.size(2) / 3;
  const int64_t head = C / n_head;
  const auto part = [&](int64_t i) {
    return as_strided(qkv, {B, n_head, T, head},
                      {qkv.stride(0), head * qkv.stride(2), qkv.stride(1), qkv.stride(2)},
                      qkv.storage_offset() + i * C * qkv.stride(2));
  };
  return {part(0), part(1), part(2)};
}

// y (B, T, C) as its heads (B, H, T, C / H), in place.
Tensor heads_of(const Tensor& y, int64_t n_head) {
  const int64_t head = y.size(2) / n_head;
  return as_strided(y, {y.size(0), n_head, y.size(1), head},
                    {y.stride(0), head * y.stride(2), y.stride(1), y.stride(2)},
                    y.storage_offset());
}

// As the op, with scale and key set.
Tensor attention_packed(const Tensor& qkv, int64_t n_head, const Tensor& mask,
                        const AttentionOptions& options) {
  const Tensor y = empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.dtype());  // (B, T, C)
  const Tensor lse =
      forward(heads_of_packed(qkv, n_head), mask, options, heads_of(y, n_head));  // (B, H, T)
  return record(
      kPackedOp, y, {qkv}, save(qkv, mask, y, lse),
      [n_head, settings = without_mask(options)](const Tensor& dy, const Saved& saved) -> Grads {
        const Tensor dqkv = empty(saved[0].shape(), dy.dtype());
        backward(heads_of_packed(saved[0], n_head), saved[1], settings,
                 {heads_of(saved[2], n_head), saved[3], heads_of(dy, n_head)},
                 heads_of_packed(dqkv, n_head));
        return {dqkv};
      });
}

// The options with their scale, and with a dropout key where one is needed.
AttentionOptions resolve(const AttentionOptions& options, int64_t head_size) {
  AttentionOptions resolved = options;
  if (!resolved.scale) {
    resolved.scale = 1 / std::sqrt(static_cast<double>(head_size));
  }
  if (resolved.dropout_p > 0 && !resolved.key) {
    resolved.key = default_generator().next_dropout_key();
  }
  return resolved;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  check_shapes(q, k, v);
  check_options(kOp, options);
  const DType common = promote_types(promote_types(q.dtype(), k.dtype()), v.dtype());
  const DType dtype = autocast_from(common);
  const AttentionOptions resolved = resolve(options, q.size(-1));

  // Two dims of heads: leading dims beyond that are joined, missing ones are 1.
  const Shape leading = leading_dims(q);
  const int64_t H = leading.empty() ? 1 : leading.back();
  const int64_t B = leading.empty() ? 1 : numel_of(Shape(leading.begin(), leading.end() - 1));
  const auto four_dims = [&](const Tensor& x) {
    return x.dim() == 4 ? x : x.reshape({B, H, x.size(-2), x.size(-1)});
  };
  Shape scores = leading;
  scores.push_back(q.size(-2));
  scores.push_back(k.size(-2));
  Tensor mask = additive_mask(kOp, options.attn_mask, scores, computed_dtype(dtype));
  if (mask.defined()) {
    mask = four_dims(mask);
  }

  const Operands x{four_dims(q.to(dtype)), four_dims(k.to(dtype)), four_dims(v.to(dtype))};
  const Tensor y = attention_4d(x, mask, resolved);  // (B, H, T, E)
  Shape shape = leading;
  shape.push_back(q.size(-2));
  shape.push_back(v.size(-1));
  return y.dim() == q.dim() ? y : y.reshape(shape);
}

Tensor scaled_dot_product_attention_packed(const Tensor& qkv, int64_t n_head,
                                           const AttentionOptions& options) {
  check_floating(kPackedOp, qkv, "qkv");
  CHARGRAD_CHECK(qkv.dim() == 3 && n_head > 0 && qkv.size(2) % (3 * n_head) == 0, kPackedOp,
                 ": qkv must be (B, T, 3 C) with C a multiple of n_head, got ", qkv.shape(),
                 " and n_head ", n_head);
  check_options(kPackedOp, options);
  const DType dtype = autocast_from(qkv.dtype());
  const int64_t B = qkv.size(0), T = qkv.size(1), head_size = qkv.size(2) / 3 / n_head;
  const Tensor mask =
      additive_mask(kPackedOp, options.attn_mask, {B, n_head, T, T}, computed_dtype(dtype));
  return attention_packed(qkv.to(dtype), n_head, mask, resolve(options, head_size));
}

}  // namespace chargrad
