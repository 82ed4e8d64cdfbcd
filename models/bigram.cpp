#include "models/bigram.h"

#include "engine/ops.h"

namespace chargrad {

BigramLM::BigramLM(int64_t vocab_size, int64_t block_size, Generator& generator)
    : token_embedding_table(vocab_size, vocab_size, generator), block_size_(block_size) {
  CHARGRAD_CHECK(block_size > 0, "BigramLM: block_size must be positive, got ", block_size);
  register_module("token_embedding_table", token_embedding_table);
}

Tensor BigramLM::forward(const Tensor& ids) const {
  check_ids("BigramLM", ids);
  return token_embedding_table(ids);  // (B, T, V)
}

}  // namespace chargrad
