#include "models/gpt.h"

#include <cmath>

#include "engine/ops.h"

namespace chargrad {
namespace {

const GPTConfig& checked(const GPTConfig& c) {
  CHARGRAD_CHECK(
      c.block_size > 0 && c.vocab_size > 0 && c.n_layer > 0 && c.n_head > 0 && c.n_embd > 0,
      "GPT: sizes must be positive, got block_size ", c.block_size, ", vocab_size ", c.vocab_size,
      ", n_layer ", c.n_layer, ", n_head ", c.n_head, ", n_embd ", c.n_embd);
  CHARGRAD_CHECK(c.n_embd % c.n_head == 0, "GPT: n_head must divide n_embd, got ", c.n_head,
                 " and ", c.n_embd);
  return c;
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(const GPTConfig& config, Generator& generator)
    : c_attn(config.n_embd, 3 * config.n_embd, config.bias, generator),
      c_proj(config.n_embd, config.n_embd, config.bias, generator),
      n_head_(config.n_head),
      dropout_(config.dropout),
      resid_dropout_(config.dropout) {
  register_module("c_attn", c_attn);
  register_module("c_proj", c_proj);
  register_module("resid_dropout", resid_dropout_);
}

Tensor CausalSelfAttention::forward(const Tensor& x) const {
  AttentionOptions options;
  options.is_causal = true;
  options.dropout_p = is_training() ? dropout_ : 0;
  const Tensor qkv = c_attn(x);  // (B, T, 3 C): queries, keys, values, each of all heads
  const Tensor y = scaled_dot_product_attention_packed(qkv, n_head_, options);  // (B, T, C)
  return resid_dropout_(c_proj(y));
}

MLP::MLP(const GPTConfig& config, Generator& generator)
    : c_fc(config.n_embd, 4 * config.n_embd, config.bias, generator),
      c_proj(4 * config.n_embd, config.n_embd, config.bias, generator),
      dropout_(config.dropout) {
  register_module("c_fc", c_fc);
  register_module("c_proj", c_proj);
  register_module("dropout", dropout_);
}

Tensor MLP::forward(const Tensor& x) const {
  return down(c_fc(x));
}

Tensor MLP::down(const Tensor& hidden) const {
  return dropout_(c_proj(hidden));
}

Block::Block(const GPTConfig& config, Generator& generator)
    : ln_1(config.n_embd, config.bias),
      attn(config, generator),
      ln_2(config.n_embd, config.bias),
      mlp(config, generator) {
  register_module("ln_1", ln_1);
  register_module("attn", attn);
  register_module("ln_2", ln_2);
  register_module("mlp", mlp);
}

Tensor Block::forward(const Tensor& x) const {
  const Tensor y = x + attn(ln_1(x));
  const Tensor hidden = mlp.c_fc(ln_2(y));  // a statement, so that the norm's result ends with it
  return y + mlp.down(hidden);
}

Transformer::Transformer(const GPTConfig& config, Generator& generator)
    : wte(config.vocab_size, config.n_embd, generator),
      wpe(config.block_size, config.n_embd, generator),
      drop(config.dropout),
      ln_f(config.n_embd, config.bias) {
  for (int64_t i = 0; i < config.n_layer; ++i) {
    h.append(config, generator);
  }
  register_module("wte", wte);
  register_module("wpe", wpe);
  register_module("drop", drop);
  register_module("h", h);
  register_module("ln_f", ln_f);
}

Tensor Transformer::forward(const Tensor& ids) const {
  const Tensor positions = wpe(arange(static_cast<double>(ids.size(1))));  // (T, C)
  Tensor x = drop(wte(ids) + positions);                                   // (B, T, C)
  for (size_t i = 0; i < h.size(); ++i) {
    x = h[i](x);
  }
  return ln_f(x);
}

GPT::GPT(const GPTConfig& config, Generator& generator, Init init)
    : transformer(checked(config), generator),
      lm_head(config.n_embd, config.vocab_size, /*with_bias=*/false, generator),
      config_(config) {
  register_module("transformer", transformer);
  register_module("lm_head", lm_head);
  transformer.wte.weight = lm_head.weight;  // tied
  if (init == Init::kGPT2) {
    init_gpt2(generator);
  }
}

void GPT::init_gpt2(Generator& generator) {
  const NoGradGuard no_grad;
  // The tied matrix is drawn twice, once as wte and once as lm_head, as nanoGPT does.
  apply([&](nn::Module& module) {
    if (const auto* linear = dynamic_cast<nn::Linear*>(&module)) {
      normal_(linear->weight, 0, 0.02, generator);
      if (linear->bias.defined()) {
        zero_(linear->bias);
      }
    } else if (const auto* embedding = dynamic_cast<nn::Embedding*>(&module)) {
      normal_(embedding->weight, 0, 0.02, generator);
    }
  });
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
  for (size_t i = 0; i < transformer.h.size(); ++i) {
    normal_(transformer.h[i].attn.c_proj.weight, 0, residual_std, generator);
    normal_(transformer.h[i].mlp.c_proj.weight, 0, residual_std, generator);
  }
}

Tensor GPT::forward(const Tensor& ids) const {
  check_ids("GPT", ids);
  return lm_head(transformer(ids));  // (B, T, V)
}

Tensor GPT::next_logits(const Tensor& ids) const {
  check_ids("GPT", ids);
  return lm_head(select(transformer(ids), 1, -1));  // (B, V)
}

int64_t GPT::num_params() const {
  int64_t n = -transformer.wpe.weight.numel();
  for (const Tensor& parameter : parameters()) {
    n += parameter.numel();
  }
  return n;
}

}  // namespace chargrad
