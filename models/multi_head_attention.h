// Several causal heads beside each other: as the list that they are, and as one product that is
// split. Both drop weights by a key, at the element's place in (B, n_head, T, T): list, split and
// the fused op drop the same ones.
#pragma once

#include <optional>

#include "engine/generator.h"
#include "models/head.h"
#include "nn/containers.h"
#include "nn/linear.h"

namespace chargrad {

// x (B, T, C) -> (B, T, n_head * head_size): the heads' outputs, joined.
class HeadList : public nn::Module {
 public:
  HeadList(int64_t n_embd, int64_t n_head, int64_t head_size, int64_t block_size,
           double dropout = 0, Generator& generator = default_generator());

  // In training mode drops weights with probability `dropout`; without a key the default
  // generator gives the next one.
  Tensor forward(const Tensor& x, std::optional<DropoutKey> key = {}) const;

  nn::ModuleList<Head> heads;

 private:
  double dropout_;
};

// The same with one matrix each for all heads' queries, keys and values, whose columns
// h * head_size and on are head h's. x (B, T, C) -> (B, T, n_head * head_size).
class MultiHeadAttention : public nn::Module {
 public:
  MultiHeadAttention(int64_t n_embd, int64_t n_head, int64_t head_size, double dropout = 0,
                     Generator& generator = default_generator());

  Tensor forward(const Tensor& x, std::optional<DropoutKey> key = {}) const;
  // Through scaled_dot_product_attention; equal up to rounding.
  Tensor forward_fused(const Tensor& x, std::optional<DropoutKey> key = {}) const;

  // Takes over the parameters of as many heads of the same sizes.
  void copy_heads(const HeadList& list);

  nn::Linear key;  // C -> n_head * head_size, without bias, as the two below
  nn::Linear query;
  nn::Linear value;

 private:
  // (B, T, n_head * head_size) -> (B, n_head, T, head_size), and back.
  Tensor split_heads(const Tensor& x) const;
  static Tensor join_heads(const Tensor& x);

  int64_t n_head_;
  double dropout_;
};

}  // namespace chargrad
