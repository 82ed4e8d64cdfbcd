// GPT as nanoGPT has it: pre-norm blocks of causal self-attention and an MLP, learned positions,
// the head tied to the token table. Radford et al., "Language Models are Unsupervised Multitask
// Learners", 2019. Fields and parameter names are nanoGPT's.
#pragma once

#include "engine/generator.h"
#include "models/language_model.h"
#include "nn/containers.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

namespace chargrad {

struct GPTConfig {
  int64_t block_size = 64;
  int64_t vocab_size = 65;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  double dropout = 0;
  bool bias = false;  // in Linear and LayerNorm; the head never has one
};

// x (B, T, C) -> (B, T, C); position t sees 0 .. t.
class CausalSelfAttention : public nn::Layer {
 public:
  CausalSelfAttention(const GPTConfig& config, Generator& generator);
  Tensor forward(const Tensor& x) const override;

  nn::Linear c_attn;  // C -> 3 C: queries, keys, values
  nn::Linear c_proj;  // C -> C

 private:
  int64_t n_head_;
  double dropout_;
  nn::Dropout resid_dropout_;
};

// x (B, T, C) -> (B, T, C) through 4 C hidden units.
class MLP : public nn::Layer {
 public:
  MLP(const GPTConfig& config, Generator& generator);
  Tensor forward(const Tensor& x) const override;

  // From c_fc's result on.
  Tensor down(const Tensor& hidden) const;

  nn::Linear c_fc;
  nn::GELULinear c_proj;

 private:
  nn::Dropout dropout_;
};

// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class Block : public nn::Layer {
 public:
  Block(const GPTConfig& config, Generator& generator);
  Tensor forward(const Tensor& x) const override;

  nn::LayerNorm ln_1;
  CausalSelfAttention attn;
  nn::LayerNorm ln_2;
  MLP mlp;
};

// What nanoGPT keeps under "transformer".
class Transformer : public nn::Layer {
 public:
  Transformer(const GPTConfig& config, Generator& generator);
  // ids (B, T) -> (B, T, C), normalised.
  Tensor forward(const Tensor& ids) const override;

  nn::Embedding wte;
  nn::Embedding wpe;
  nn::Dropout drop;
  nn::ModuleList<Block> h;
  nn::LayerNorm ln_f;
};

class GPT : public LanguageModel {
 public:
  enum class Init {
    kGPT2,     // N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 n_layer)), biases 0
    kDefault,  // PyTorch's, as the modules draw it
  };

  // Draws in nanoGPT's order, so that its seeds give its parameters. Throws where n_head does
  // not divide n_embd or a size is not positive.
  explicit GPT(const GPTConfig& config, Generator& generator = default_generator(),
               Init init = Init::kGPT2);

  Tensor forward(const Tensor& ids) const override;
  Tensor next_logits(const Tensor& ids) const override;
  std::unique_ptr<Decoder> decoder(int64_t batch) const override;
  int64_t block_size() const override { return config_.block_size; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  const GPTConfig& config() const { return config_; }

  // As nanoGPT counts: all parameters once, the position table left out.
  int64_t num_params() const;

  Transformer transformer;
  nn::Linear lm_head;  // its weight is transformer.wte's

 private:
  void init_gpt2(Generator& generator);

  GPTConfig config_;
};

}  // namespace chargrad
