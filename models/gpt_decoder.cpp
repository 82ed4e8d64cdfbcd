// GPT's decoder: keys and values of every layer are kept, so that an id within the block costs one
// row of each product. Beyond the block the learned positions shift with each id, and the context
// is computed anew; the last layer then takes its queries and all that follows from the last row.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/key_value_cache.h"
#include "engine/ops.h"
#include "engine/packed_linear.h"
#include "models/decoder.h"
#include "models/gpt.h"

namespace chargrad {
namespace {

// x (B, T, C) -> its last row (B, 1, C).
Tensor last_row(const Tensor& x) {
  return x.size(1) == 1 ? x : narrow(x, 1, x.size(1) - 1, 1);
}

PackedLinear packed(const nn::Linear& layer) {
  return PackedLinear(layer.weight, layer.bias);
}

// Outputs [start, start + length) of a layer.
PackedLinear packed(const nn::Linear& layer, int64_t start, int64_t length) {
  return PackedLinear(narrow(layer.weight, 0, start, length),
                      layer.bias.defined() ? narrow(layer.bias, 0, start, length) : Tensor());
}

// A block and its weights. Only the last one has its queries apart.
struct Layer {
  Layer(const Block& the_block, bool is_last, int64_t batch, const GPTConfig& config)
      : block(the_block),
        queries(is_last ? packed(block.attn.c_attn, 0, config.n_embd) : packed(block.attn.c_attn)),
        c_proj(packed(block.attn.c_proj)),
        c_fc(packed(block.mlp.c_fc)),
        mlp_c_proj(packed(block.mlp.c_proj)),
        cache(batch, config.n_head, config.block_size) {
    if (is_last) {
      keys_values.emplace(packed(block.attn.c_attn, config.n_embd, 2 * config.n_embd));
    }
  }

  const Block& block;
  PackedLinear queries;  // and keys and values, unless they are apart
  std::optional<PackedLinear> keys_values;
  PackedLinear c_proj, c_fc, mlp_c_proj;
  KeyValueCache cache;
};

class GPTDecoder : public Decoder {
 public:
  GPTDecoder(const GPT& model, int64_t batch)
      : Decoder(batch, model.block_size()), model_(model), lm_head_(packed(model.lm_head)) {
    for (const Tensor& parameter : model.parameters()) {
      versions_.emplace_back(parameter, parameter.version());
    }
    const size_t count = model.transformer.h.size();
    layers_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      layers_.emplace_back(model.transformer.h[i], i + 1 == count, batch, model.config());
    }
  }

 private:
  Tensor logits(const Tensor& context, bool only_last_is_new) override {
    check_weights();
    const int64_t T = context.size(1);
    const int64_t first = only_last_is_new ? T - 1 : 0;
    const Transformer& transformer = model_.transformer;
    const Tensor tokens = transformer.wte(narrow(context, 1, first, T - first));  // (B, t, C)
    Tensor x = tokens + narrow(transformer.wpe.weight, 0, first, T - first);      // (B, t, C)
    for (Layer& layer : layers_) {
      x = run(layer, x, first);  // (B, 1, C) after the last one
    }
    return lm_head_(select(transformer.ln_f(x), 1, 0));  // (B, V)
  }

  void check_weights() const {
    for (const auto& [parameter, version] : versions_) {
      CHARGRAD_CHECK(parameter.version() == version,
                     "Decoder: the model's weights were changed since it was made");
    }
  }

  // x (B, t, C) at positions first, first + 1, ... -> the block's result, of the last layer the
  // last row alone.
  Tensor run(Layer& layer, const Tensor& x, int64_t first) const {
    const Tensor attended = layer.c_proj(attend(layer, layer.block.ln_1(x), first));
    const Tensor y = (layer.keys_values ? last_row(x) : x) + attended;
    return y + layer.mlp_c_proj(gelu(layer.c_fc(layer.block.ln_2(y))));
  }

  // h (B, t, C) -> what its rows take from all positions so far (B, t, C), or (B, 1, C).
  Tensor attend(Layer& layer, const Tensor& h, int64_t first) const {
    const int64_t C = h.size(2);
    if (layer.keys_values) {
      return attend_last(layer, layer.queries(last_row(h)), (*layer.keys_values)(h), first);
    }
    const Tensor qkv = layer.queries(h);  // (B, t, 3 C)
    const Tensor kv = narrow(qkv, 2, C, 2 * C);
    if (first > 0) {
      return attend_last(layer, narrow(qkv, 2, 0, C), kv, first);
    }
    if (h.size(1) < model_.block_size()) {  // a full block is of no use to the next id
      layer.cache.keep(kv, first);
    }
    AttentionOptions options;
    options.is_causal = true;
    return scaled_dot_product_attention_packed(qkv, model_.config().n_head, options);
  }

  // One row of queries q (B, 1, C), which sees all before it and kv (B, t, 2 C) -> (B, 1, C).
  Tensor attend_last(Layer& layer, const Tensor& q, const Tensor& kv, int64_t first) const {
    if (kv.size(1) == model_.block_size()) {  // of no use to the next id
      const int64_t H = model_.config().n_head, C = q.size(2);
      const auto heads = [H](const Tensor& x) {  // (B, t, C) -> (B, H, t, D)
        return x.view({x.size(0), x.size(1), H, x.size(2) / H}).transpose(1, 2);
      };
      const Tensor y = scaled_dot_product_attention(heads(q), heads(narrow(kv, 2, 0, C)),
                                                    heads(narrow(kv, 2, C, C)));
      return y.reshape(q.shape());
    }
    layer.cache.keep(kv, first);
    return layer.cache.attend(q);
  }

  const GPT& model_;
  PackedLinear lm_head_;
  std::vector<std::pair<Tensor, uint64_t>> versions_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Decoder> GPT::decoder(int64_t batch) const {
  if (is_training() && config_.dropout > 0) {
    return LanguageModel::decoder(batch);  // dropout differs from call to call
  }
  return std::make_unique<GPTDecoder>(*this, batch);
}

}  // namespace chargrad
