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

// A linear layer whose weight lies as the product for one row reads it: by columns, in the dtype
// in which it takes part.
class Projection {
 public:
  Projection() = default;
  Projection(const Tensor& weight, const Tensor& bias)
      : weight_(weight.to(autocast_dtype().value_or(weight.dtype()))
                    .transpose(0, 1)
                    .contiguous()
                    .transpose(0, 1)),
        bias_(bias) {}
  explicit Projection(const nn::Linear& layer) : Projection(layer.weight, layer.bias) {}

  // Outputs [start, start + length) alone.
  Projection part(int64_t start, int64_t length) const {
    Projection result;
    result.weight_ = narrow(weight_, 0, start, length);
    result.bias_ = bias_.defined() ? narrow(bias_, 0, start, length) : bias_;
    return result;
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight_, bias_); }

 private:
  Tensor weight_, bias_;
};

class GPTDecoder : public Decoder {
 public:
  GPTDecoder(const GPT& model, int64_t batch)
      : Decoder(batch, model.block_size()), model_(model), batch_(batch) {
    const NoGradGuard no_grad;
    for (const Tensor& parameter : model.parameters()) {
      versions_.emplace_back(parameter, parameter.version());
    }
    for (size_t i = 0; i < model.transformer.h.size(); ++i) {
      const Block& block = model.transformer.h[i];
      layers_.push_back({block, Projection(block.attn.c_attn), Projection(block.attn.c_proj),
                         Projection(block.mlp.c_fc), Projection(block.mlp.c_proj)});
    }
  }

 private:
  struct Layer {
    const Block& block;
    Projection c_attn, c_proj, c_fc, mlp_c_proj;
    Tensor keys = {}, values = {};  // (B, H, block_size, D), the positions seen are filled
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
    for (Layer& layer : layers_) {
      x = run(layer, x, first);  // (B, 1, C) after the last one
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
  Tensor run(Layer& layer, const Tensor& x, int64_t first) {
    const bool is_last = &layer == &layers_.back();
    const Tensor attended = attend(layer, heads(layer, x, is_last), first);
    const Tensor y = (is_last ? last_row(x) : x) + layer.c_proj(attended);
    const Block& block = layer.block;
    return y + layer.mlp_c_proj(block.mlp.gelu(layer.c_fc(block.ln_2(y))));
  }

  // Queries, keys and values of x (B, t, C); with last_query_alone q is (B, H, 1, D).
  Heads heads(const Layer& layer, const Tensor& x, bool last_query_alone) const {
    const Tensor h = layer.block.ln_1(x);
    const int64_t C = x.size(2);
    std::vector<Tensor> parts;
    if (last_query_alone && x.size(1) > 1) {
      parts = split(layer.c_attn.part(C, 2 * C)(h), C, 2);
      parts.insert(parts.begin(), layer.c_attn.part(0, C)(last_row(h)));
    } else {
      parts = split(layer.c_attn(h), C, 2);
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
