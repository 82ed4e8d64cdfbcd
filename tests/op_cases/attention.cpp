// scaled_dot_product_attention, and packed: every option, shapes in which T, S, D and E all differ.
#include <limits>

#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

// The op on q, k, v with these options.
std::function<Tensor(const std::vector<Tensor>&)> attention(const AttentionOptions& options) {
  return [options](const std::vector<Tensor>& in) {
    return scaled_dot_product_attention(in[0], in[1], in[2], options);
  };
}

// The packed op on qkv of that many heads.
std::function<Tensor(const std::vector<Tensor>&)> packed(int64_t n_head,
                                                         const AttentionOptions& options) {
  return [n_head, options](const std::vector<Tensor>& in) {
    return scaled_dot_product_attention_packed(in[0], n_head, options);
  };
}

}  // namespace

std::vector<OpCase> attention_cases() {
  AttentionOptions plain, causal, scaled, dropped, causal_dropped, masked, added;
  causal.is_causal = true;
  scaled.scale = 0.3;
  dropped.dropout_p = 0.4;
  dropped.key = DropoutKey{5, 1};
  causal_dropped = dropped;
  causal_dropped.is_causal = true;
  // Row 1 sees nothing.
  masked.attn_mask = tensor({{1, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 0, 0}}, kBool);
  added.attn_mask = tensor({{0.5, -1, 2, -std::numeric_limits<double>::infinity()}}, kFloat64);

  const std::vector<Shape> usual{{2, 3, 2}, {2, 4, 2}, {2, 4, 5}};  // q, k, v
  const std::vector<Shape> heads{{1, 2, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}};
  // For a packed (2, 3, ...) of two heads.
  AttentionOptions packed_mask;
  packed_mask.attn_mask = tensor({{1, 0, 1}, {0, 0, 0}, {0, 1, 1}}, kBool);
  const std::vector<Shape> qkv{{2, 3, 12}};
  const std::string op = "scaled_dot_product_attention/";
  const std::string op_packed = "scaled_dot_product_attention_packed/";
  return {
      {op + "usual", usual, attention(plain)},
      {op + "size_1", {{1, 1}, {1, 1}, {1, 1}}, attention(plain)},
      {op + "odd", {{5, 3}, {7, 3}, {7, 1}}, attention(plain)},
      {op + "heads", heads, attention(plain)},
      {op + "five_dims", {{1, 2, 1, 2, 2}, {1, 2, 1, 3, 2}, {1, 2, 1, 3, 1}}, attention(plain)},
      {op + "strided", usual, attention(plain), Draw::kNormal, Layout::kStrided},
      {op + "scale", usual, attention(scaled)},
      {op + "causal", heads, attention(causal)},
      {op + "causal_more_keys", usual, attention(causal)},
      {op + "causal_more_queries", {{5, 2}, {3, 2}, {3, 2}}, attention(causal)},
      {op + "causal_strided", heads, attention(causal), Draw::kNormal, Layout::kStrided},
      {op + "bool_mask", usual, attention(masked)},
      {op + "additive_mask", usual, attention(added)},
      {op + "dropout", usual, attention(dropped)},
      {op + "causal_dropout", heads, attention(causal_dropped)},
      {op_packed + "usual", qkv, packed(2, causal)},
      {op_packed + "one_head", qkv, packed(1, causal)},
      {op_packed + "size_1", {{1, 1, 3}}, packed(1, causal)},
      {op_packed + "odd", {{1, 5, 27}}, packed(3, causal)},
      {op_packed + "strided", qkv, packed(2, causal), Draw::kNormal, Layout::kStrided},
      {op_packed + "all_see_all", qkv, packed(2, plain)},
      {op_packed + "scale", qkv, packed(2, scaled)},
      {op_packed + "bool_mask", qkv, packed(2, packed_mask)},
      {op_packed + "causal_dropout", qkv, packed(2, causal_dropped)},
  };
}

}  // namespace chargrad::tests
