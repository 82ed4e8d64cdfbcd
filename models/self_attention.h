// Self-attention over batches, with its weights returned and the stable softmax written out.
#pragma once

#include "engine/generator.h"
#include "nn/module.h"

namespace chargrad {

// x (B, T, d_model) -> (B, T, d_v); every token sees every token. The matrices are drawn from
// N(0, 1): queries, keys, values. Queries and keys have d_k numbers, values d_v.
class SelfAttention : public nn::Module {
 public:
  SelfAttention(int64_t d_model, int64_t d_k, int64_t d_v,
                Generator& generator = default_generator());

  struct Output {
    Tensor output;   // (B, T, d_v)
    Tensor weights;  // (B, T, T), rows sum to 1
  };
  Output forward(const Tensor& x) const;
  // What the softmax is taken of: (B, T, T).
  Tensor scores(const Tensor& x) const;

  Tensor W_Q;  // (d_model, d_k)
  Tensor W_K;  // (d_model, d_k)
  Tensor W_V;  // (d_model, d_v)
};

// Softmax along the last dim as a lesson writes it: shifted by the largest score, so that no
// exponential overflows. The op `softmax` does the same in one pass.
Tensor stable_softmax(const Tensor& scores);

}  // namespace chargrad
