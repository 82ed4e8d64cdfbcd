// One causal self-attention head, written out step by step.
#pragma once

#include "engine/generator.h"
#include "nn/linear.h"
#include "nn/module.h"

namespace chargrad {

// What the scores are divided by: the square root of the length of a key, or nothing, which shows
// why one divides.
enum class AttentionScale { kSqrtDk, kNone };

// x (B, T, C) -> (B, T, head_size), T in [1, block_size]; position t sees 0 .. t.
class Head : public nn::Module {
 public:
  Head(int64_t n_embd, int64_t head_size, int64_t block_size,
       Generator& generator = default_generator(), AttentionScale scale = AttentionScale::kSqrtDk);

  // (B, T, T): row t sums to 1 over columns 0 .. t, 0 beyond.
  Tensor attention_weights(const Tensor& x) const;

  struct Output {
    Tensor output;   // (B, T, head_size)
    Tensor weights;  // (B, T, T)
  };
  Output forward_with_weights(const Tensor& x) const;
  Tensor forward(const Tensor& x) const { return forward_with_weights(x).output; }

  nn::Linear key;  // C -> head_size, without bias, as the two below
  nn::Linear query;
  nn::Linear value;
  Tensor tril;  // (block_size, block_size), a buffer: 1 where column <= row

 private:
  AttentionScale scale_;
};

}  // namespace chargrad
