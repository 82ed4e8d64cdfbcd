// A language model of one attention head: the step between the bigram and the GPT.
#pragma once

#include "models/head.h"
#include "models/language_model.h"
#include "nn/embedding.h"

namespace chargrad {

// Token and position embeddings added, one Head, a projection to the vocabulary. PyTorch's
// default initialisation, drawn in the order of the members.
class HeadLM : public LanguageModel {
 public:
  HeadLM(int64_t vocab_size, int64_t n_embd, int64_t head_size, int64_t block_size,
         Generator& generator = default_generator(),
         AttentionScale scale = AttentionScale::kSqrtDk);

  // ids (B, T) -> the head's weights (B, T, T).
  Tensor attention_weights(const Tensor& ids) const;

  Tensor forward(const Tensor& ids) const override;
  int64_t block_size() const override { return position_embedding_table.weight.size(0); }
  int64_t vocab_size() const override { return token_embedding_table.weight.size(0); }

  nn::Embedding token_embedding_table;     // (V, C)
  nn::Embedding position_embedding_table;  // (block_size, C)
  Head sa_head;                            // C -> head_size
  nn::Linear lm_head;                      // head_size -> V

 private:
  // ids (B, T) -> (B, T, C).
  Tensor embed(const Tensor& ids) const;
};

}  // namespace chargrad
