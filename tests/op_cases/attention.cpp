// scaled_dot_product_attention: every option, shapes in which T, S, D and E all differ.
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
  const std::string op = "scaled_dot_product_attention/";
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
  };
}

}  // namespace chargrad::tests
