#pragma once

#include "engine/generator.h"
#include "nn/module.h"

namespace chargrad::nn {

// A table of rows: ids (...) int64 in [0, num_embeddings) -> (..., embedding_dim). As
// torch.nn.Embedding: weight (num_embeddings, embedding_dim) is drawn from N(0, 1).
class Embedding : public Layer {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim,
            Generator& generator = default_generator());
  Tensor forward(const Tensor& ids) const override;

  Tensor weight;
};

}  // namespace chargrad::nn
