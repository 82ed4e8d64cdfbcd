#include "models/head_lm.h"

#include "engine/ops.h"

namespace chargrad {

HeadLM::HeadLM(int64_t vocab_size, int64_t n_embd, int64_t head_size, int64_t block_size,
               Generator& generator, AttentionScale scale)
    : token_embedding_table(vocab_size, n_embd, generator),
      position_embedding_table(block_size, n_embd, generator),
      sa_head(n_embd, head_size, block_size, generator, scale),
      lm_head(head_size, vocab_size, /*with_bias=*/true, generator) {
  register_module("token_embedding_table", token_embedding_table);
  register_module("position_embedding_table", position_embedding_table);
  register_module("sa_head", sa_head);
  register_module("lm_head", lm_head);
}

Tensor HeadLM::embed(const Tensor& ids) const {
  check_ids("HeadLM", ids);
  const Tensor tokens = token_embedding_table(ids);  // (B, T, C)
  const Tensor positions =
      position_embedding_table(arange(static_cast<double>(ids.size(1))));  // (T, C)
  return tokens + positions;
}

Tensor HeadLM::forward(const Tensor& ids) const {
  return lm_head(sa_head.forward(embed(ids)));  // (B, T, V)
}

Tensor HeadLM::attention_weights(const Tensor& ids) const {
  return sa_head.attention_weights(embed(ids));
}

}  // namespace chargrad
