// Trainable self-attention, first version: three raw matrices.
#pragma once

#include "engine/generator.h"
#include "models/attention_steps.h"
#include "nn/module.h"

namespace chargrad {

// x (T, d_in) -> (T, d_out); every token sees every token. The matrices are drawn uniform in
// [0, 1): queries, keys, values.
class SelfAttentionV1 : public nn::Layer {
 public:
  SelfAttentionV1(int64_t d_in, int64_t d_out, Generator& generator = default_generator());

  AttentionSteps steps(const Tensor& x) const;
  Tensor forward(const Tensor& x) const override { return steps(x).output; }

  Tensor W_query;  // (d_in, d_out), as the two below
  Tensor W_key;
  Tensor W_value;
};

}  // namespace chargrad
