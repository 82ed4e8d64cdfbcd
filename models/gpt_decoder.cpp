// GPT's decoder: keys and values of every layer are kept, so that an id within the block costs one
// row of each product. Beyond the block the learned positions shift with each id, and the context
// is computed anew; the last layer then takes its queries and all that follows from the last row.
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops.h"
#include "models/decoder.h"
#include "models/gpt.h"

namespace chargrad {
namespace {

// x (B, T, C) -> its last row (B, 1, C).
Tensor last_row(const Tensor& x) {
  return narrow(x, 1, x.size(1) - 1, 1);
}

class GPTDecoder : public Decoder {
 public:
  GPTDecoder(const GPT& model, int64_t batch)
      : Decoder(batch, model.block_size()), model_(model), batch_(batch) {
    for (const Tensor& parameter : model.parameters()) {
      versions_.emplace_back(parameter, parameter.version());
    }
    layers_.resize(model.transformer.h.size());
  }

 private:
  struct Layer {
    Tensor keys, values;  // (B, H, block_size, D), of which the positions seen are filled
  };
  struct Heads {
    Tensor q, k, v;  // (B, H, T, D)
  };

  Tensor logits(const Tensor& context, bool only_last_is_new) override {
    check_weights();
    const int64_t T = context.size(1);
    const int64_t first = only_last_is_new ? T - 1 : 0;
    const Transformer& transformer = model_.transformer;
    const Tensor tokens = transformer.wte(narrow(context, 1, first, T - first));  // (B, t, C)
    Tensor x = tokens + narrow(transformer.wpe.weight, 0, first, T - first);      // (B, t, C)
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = block(i, x, first);  // (B, 1, C) after the last one
    }
    return model_.lm_head(select(transformer.ln_f(x), 1, 0));  // (B, V)
  }

  void check_weights() const {
    for (const auto& [parameter, version] : versions_) {
      CHARGRAD_CHECK(parameter.version() == version,
                     "Decoder: the model's weights were changed since it was made");
    }
  }

  // x (B, t, C) at positions first, first + 1, ... -> the block's result, of the last layer the
  // last row alone.
  Tensor block(size_t i, const Tensor& x, int64_t first) {
    const Block& block = model_.transformer.h[i];
    const bool is_last = i + 1 == layers_.size();
    const Tensor attended = attend(layers_[i], heads(block, x, is_last), first);
    const Tensor y = (is_last ? last_row(x) : x) + block.attn.c_proj(attended);
    const MLP& mlp = block.mlp;
    return y + mlp.c_proj(mlp.gelu(mlp.c_fc(block.ln_2(y))));
  }

  // Queries, keys and values of x (B, t, C); with last_query_alone q is (B, H, 1, D).
  Heads heads(const Block& block, const Tensor& x, bool last_query_alone) const {
    const nn::Linear& c_attn = block.attn.c_attn;
    const Tensor h = block.ln_1(x);
    const int64_t C = x.size(2);
    std::vector<Tensor> parts;
    if (last_query_alone && x.size(1) > 1) {
      const auto rows = [&](const Tensor& t, int64_t start, int64_t length) {
        return t.defined() ? narrow(t, 0, start, length) : t;
      };
      const Tensor kv = linear(h, rows(c_attn.weight, C, 2 * C), rows(c_attn.bias, C, 2 * C));
      parts = split(kv, C, 2);
      parts.insert(parts.begin(),
                   linear(last_row(h), rows(c_attn.weight, 0, C), rows(c_attn.bias, 0, C)));
    } else {
      parts = split(c_attn(h), C, 2);
    }
    for (Tensor& part : parts) {
      part = view(part, {batch_, part.size(1), model_.config().n_head, -1}).transpose(1, 2);
    }
    return {parts[0], parts[1], parts[2]};
  }

  // Keeps the keys and values and returns what the queries, the last ones of the context, take
  // from all so far: (B, queries, C).
  Tensor attend(Layer& layer, const Heads& heads, int64_t first) const {
    const int64_t t = heads.k.size(2), queries = heads.q.size(2);
    Tensor k = heads.k, v = heads.v;
    if (first > 0 || t < model_.block_size()) {  // a full block is of no use to the next id
      k = keep(layer.keys, k, first);
      v = keep(layer.values, v, first);
    }
    AttentionOptions options;
    options.is_causal = queries > 1;  // one row, the last, sees all
    const Tensor y = scaled_dot_product_attention(heads.q, k, v, options);  // (B, H, queries, D)
    return reshape(y.transpose(1, 2), {batch_, queries, model_.config().n_embd});
  }

  // Writes x (B, H, t, D) into the cache at `first` and returns all up to there.
  Tensor keep(Tensor& cache, const Tensor& x, int64_t first) const {
    if (!cache.defined()) {
      cache = empty({batch_, x.size(1), model_.block_size(), x.size(3)}, x.dtype());
    }
    copy_(narrow(cache, 2, first, x.size(2)), x);
    return narrow(cache, 2, 0, first + x.size(2));
  }

  const GPT& model_;
  int64_t batch_;
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
