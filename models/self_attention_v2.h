// Trainable self-attention, second version: the same machine through nn::Linear.
#pragma once

#include "engine/generator.h"
#include "models/attention_steps.h"
#include "nn/linear.h"

namespace chargrad {

// x (T, d_in) -> (T, d_out); every token sees every token. A Linear holds its matrix transposed,
// (d_out, d_in): copied into SelfAttentionV1 that way round it gives equal outputs.
class SelfAttentionV2 : public nn::Layer {
 public:
  SelfAttentionV2(int64_t d_in, int64_t d_out, bool qkv_bias = false,
                  Generator& generator = default_generator());

  AttentionSteps steps(const Tensor& x) const;
  Tensor forward(const Tensor& x) const override { return steps(x).output; }

  nn::Linear W_query;  // d_in -> d_out, as the two below
  nn::Linear W_key;
  nn::Linear W_value;
};

}  // namespace chargrad
