#include "models/multi_head_attention.h"

#include <cmath>
#include <limits>

#include "engine/ops.h"

namespace chargrad {
namespace {

void check_sizes(const char* name, int64_t n_head, double dropout) {
  CHARGRAD_CHECK(n_head > 0, name, ": n_head must be positive, got ", n_head);
  CHARGRAD_CHECK(dropout >= 0 && dropout <= 1, name, ": dropout must be in [0, 1], got ", dropout);
}

}  // namespace

HeadList::HeadList(int64_t n_embd, int64_t n_head, int64_t head_size, int64_t block_size,
                   double dropout, Generator& generator)
    : dropout_(dropout) {
  check_sizes("HeadList", n_head, dropout);
  for (int64_t h = 0; h < n_head; ++h) {
    heads.append(n_embd, head_size, block_size, generator);
  }
  register_module("heads", heads);
}

Tensor HeadList::forward(const Tensor& x, std::optional<DropoutKey> key) const {
  CHARGRAD_CHECK(x.dim() == 3, "HeadList: x must be (B, T, C), got shape ", x.shape());
  const int64_t B = x.size(0), T = x.size(1), H = static_cast<int64_t>(heads.size());
  const Tensor mask =
      chargrad::dropout(ones({B, H, T, T}, x.dtype()), dropout_, is_training(), key);
  std::vector<Tensor> outputs;
  for (int64_t h = 0; h < H; ++h) {
    const Head& head = heads[static_cast<size_t>(h)];
    const Tensor weights = head.attention_weights(x) * mask.select(1, h);  // (B, T, T)
    outputs.push_back(matmul(weights, head.value(x)));                     // (B, T, head_size)
  }
  return cat(outputs, -1);  // (B, T, n_head * head_size)
}

MultiHeadAttention::MultiHeadAttention(int64_t n_embd, int64_t n_head, int64_t head_size,
                                       double dropout, Generator& generator)
    : key(n_embd, n_head * head_size, /*with_bias=*/false, generator),
      query(n_embd, n_head * head_size, /*with_bias=*/false, generator),
      value(n_embd, n_head * head_size, /*with_bias=*/false, generator),
      n_head_(n_head),
      dropout_(dropout) {
  check_sizes("MultiHeadAttention", n_head, dropout);
  register_module("key", key);
  register_module("query", query);
  register_module("value", value);
}

Tensor MultiHeadAttention::split_heads(const Tensor& x) const {
  const int64_t B = x.size(0), T = x.size(1);
  return x.view({B, T, n_head_, x.size(2) / n_head_}).transpose(1, 2);
}

Tensor MultiHeadAttention::join_heads(const Tensor& x) {
  const int64_t B = x.size(0), T = x.size(2);
  return x.transpose(1, 2).reshape({B, T, x.size(1) * x.size(3)});
}

Tensor MultiHeadAttention::forward(const Tensor& x, std::optional<DropoutKey> dropout_key) const {
  CHARGRAD_CHECK(x.dim() == 3, "MultiHeadAttention: x must be (B, T, C), got shape ", x.shape());
  const int64_t T = x.size(1);
  const Tensor k = split_heads(key(x));    // (B, H, T, head_size)
  const Tensor q = split_heads(query(x));  // (B, H, T, head_size)
  const Tensor v = split_heads(value(x));  // (B, H, T, head_size)

  const double d_k = static_cast<double>(k.size(-1));
  Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(d_k);  // (B, H, T, T)
  const Tensor future = eq(tril(ones({T, T})), 0);                  // (T, T)
  scores = masked_fill(scores, future, -std::numeric_limits<double>::infinity());
  Tensor weights = softmax(scores, -1);  // (B, H, T, T)
  weights = chargrad::dropout(weights, dropout_, is_training(), dropout_key);
  return join_heads(matmul(weights, v));
}

Tensor MultiHeadAttention::forward_fused(const Tensor& x,
                                         std::optional<DropoutKey> dropout_key) const {
  CHARGRAD_CHECK(x.dim() == 3, "MultiHeadAttention: x must be (B, T, C), got shape ", x.shape());
  AttentionOptions options;
  options.is_causal = true;
  options.dropout_p = is_training() ? dropout_ : 0;
  options.key = dropout_key;
  return join_heads(scaled_dot_product_attention(split_heads(query(x)), split_heads(key(x)),
                                                 split_heads(value(x)), options));
}

void MultiHeadAttention::copy_heads(const HeadList& list) {
  std::vector<Tensor> keys, queries, values;
  for (size_t h = 0; h < list.heads.size(); ++h) {
    keys.push_back(list.heads[h].key.weight.detach());
    queries.push_back(list.heads[h].query.weight.detach());
    values.push_back(list.heads[h].value.weight.detach());
  }
  load_state_dict(
      {{"key.weight", cat(keys)}, {"query.weight", cat(queries)}, {"value.weight", cat(values)}});
}

}  // namespace chargrad
