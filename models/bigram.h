// The smallest language model: the next character given one character.
#pragma once

#include "engine/generator.h"
#include "models/language_model.h"
#include "nn/embedding.h"

namespace chargrad {

// A vocabulary x vocabulary table whose row `id` holds the logits of what follows id. It looks
// at the last character alone, whatever the context; `block_size` is how many it is shown.
class BigramLM : public LanguageModel {
 public:
  BigramLM(int64_t vocab_size, int64_t block_size, Generator& generator = default_generator());

  Tensor forward(const Tensor& ids) const override;
  int64_t block_size() const override { return block_size_; }
  int64_t vocab_size() const override { return token_embedding_table.weight.size(0); }

  nn::Embedding token_embedding_table;  // (V, V)

 private:
  int64_t block_size_;
};

}  // namespace chargrad
