#include "nn/embedding.h"

#include "engine/ops.h"

namespace chargrad::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, Generator& generator) {
  CHARGRAD_CHECK(num_embeddings > 0 && embedding_dim > 0,
                 "Embedding: num_embeddings and embedding_dim must be positive, got ",
                 num_embeddings, " and ", embedding_dim);
  weight = normal_(empty({num_embeddings, embedding_dim}), 0, 1, generator);
  register_parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& ids) const {
  return embedding(ids, weight);
}

}  // namespace chargrad::nn
