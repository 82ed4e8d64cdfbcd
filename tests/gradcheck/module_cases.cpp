// The modules of nn/ and models/, small, in double, under PyTorch's default initialisation: GPT-2's
// would make gradients too small to tell a fault from rounding.
#include <cmath>
#include <memory>
#include <utility>

#include "engine/ops.h"
#include "models/bigram.h"
#include "models/gpt.h"
#include "models/head_lm.h"
#include "models/multi_head_attention.h"
#include "models/self_attention.h"
#include "models/self_attention_v1.h"
#include "models/self_attention_v2.h"
#include "nn/activation.h"
#include "nn/containers.h"
#include "tests/gradcheck/cases.h"

namespace chargrad::tests {
namespace {

constexpr uint64_t kSeed = 1337;

// While alive, the default generator gives its first dropout keys again; so that a module draws the
// same masks in each call.
class FixedDropout {
 public:
  FixedDropout() : calls_(default_generator().dropout_calls()) {
    default_generator().set_dropout_calls(0);
  }
  ~FixedDropout() { default_generator().set_dropout_calls(calls_); }
  FixedDropout(const FixedDropout&) = delete;
  FixedDropout& operator=(const FixedDropout&) = delete;

 private:
  uint64_t calls_;
};

// A module's parameters and, where `x_shape` is given, its input. `call` maps module and input to
// the result.
template <class M, class Call>
Subject subject(std::shared_ptr<M> module, const Shape& x_shape, Call call) {
  module->to(kFloat64);
  Subject s;
  for (const auto& [name, parameter] : module->named_parameters()) {
    s.inputs.push_back(parameter);
    s.names.push_back(name);
  }
  if (!x_shape.empty()) {
    Generator generator(kSeed + 1);
    s.inputs.push_back(randn(x_shape, kFloat64, generator).set_requires_grad());
    s.names.emplace_back("x");
  }
  s.f = [module, call](const std::vector<Tensor>& inputs) {
    const FixedDropout fixed;
    return call(*module, inputs.back());
  };
  return s;
}

// A case of a module whose forward takes and gives one floating tensor; `make` takes the
// generator that the parameters are drawn from.
template <class Make>
Case layer_case(std::string name, Shape x_shape, Make make) {
  return {std::move(name), [x_shape, make] {
            Generator generator(kSeed);
            return subject(make(generator), x_shape,
                           [](const auto& module, const Tensor& x) { return module.forward(x); });
          }};
}

// The same in evaluation mode.
template <class Make>
Case eval_case(std::string name, Shape x_shape, Make make) {
  return layer_case(std::move(name), std::move(x_shape), [make](Generator& generator) {
    auto module = make(generator);
    module->eval();
    return module;
  });
}

Tensor draw_ids(int64_t vocab_size, const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return randint(0, vocab_size, shape, generator);
}

enum class Result { kLoss, kLogits, kNextLogits };

// A language model's parameters, at ids (2, T).
template <class Make>
Case model_case(std::string name, int64_t T, Result result, Make make) {
  return {std::move(name), [T, result, make] {
            Generator generator(kSeed);
            auto model = make(generator);
            const Tensor ids = draw_ids(model->vocab_size(), {2, T}, kSeed + 2);
            const Tensor targets = draw_ids(model->vocab_size(), {2, T}, kSeed + 3);
            return subject(model, {}, [=](const LanguageModel& m, const Tensor&) {
              return result == Result::kLoss     ? m.loss(ids, targets)
                     : result == Result::kLogits ? m.forward(ids)
                                                 : m.next_logits(ids);
            });
          }};
}

void add_layers(std::vector<Case>& cases) {
  using namespace nn;
  const auto linear = [](int64_t in, int64_t out, bool with_bias) {
    return [=](Generator& g) { return std::make_shared<Linear>(in, out, with_bias, g); };
  };
  cases.push_back(layer_case("nn.Linear/with_bias", {2, 3, 5}, linear(5, 4, true)));
  cases.push_back(layer_case("nn.Linear/without_bias", {3, 5}, linear(5, 4, false)));
  cases.push_back(layer_case("nn.Linear/one_feature", {3, 1}, linear(1, 1, true)));
  const auto gelu_linear = [](bool with_bias) {
    return [=](Generator& g) { return std::make_shared<GELULinear>(5, 4, with_bias, g); };
  };
  cases.push_back(layer_case("nn.GELULinear/with_bias", {2, 3, 5}, gelu_linear(true)));
  cases.push_back(layer_case("nn.GELULinear/without_bias", {3, 5}, gelu_linear(false)));

  cases.push_back({"nn.Embedding/repeated_ids", [] {
                     Generator generator(kSeed);
                     const Tensor ids = draw_ids(4, {3, 5}, kSeed + 2);
                     return subject(std::make_shared<Embedding>(4, 3, generator), {},
                                    [ids](const Embedding& m, const Tensor&) { return m(ids); });
                   }});

  const auto norm = [](int64_t size, bool with_bias, double eps) {
    return [=](Generator&) { return std::make_shared<LayerNorm>(size, with_bias, eps); };
  };
  cases.push_back(layer_case("nn.LayerNorm/with_bias", {2, 3, 5}, norm(5, true, 1e-5)));
  cases.push_back(layer_case("nn.LayerNorm/without_bias", {3, 5}, norm(5, false, 1e-5)));
  cases.push_back(layer_case("nn.LayerNorm/large_eps", {3, 5}, norm(5, true, 0.5)));

  const auto dropout = [](Generator&) { return std::make_shared<Dropout>(0.3); };
  cases.push_back(layer_case("nn.Dropout/training", {4, 5}, dropout));
  cases.push_back(eval_case("nn.Dropout/evaluation", {4, 5}, dropout));

  const auto gelu = [](GeluApproximate approximate) {
    return [=](Generator&) { return std::make_shared<GELU>(approximate); };
  };
  cases.push_back(layer_case("nn.GELU/exact", {3, 5}, gelu(GeluApproximate::kNone)));
  cases.push_back(layer_case("nn.GELU/tanh", {3, 5}, gelu(GeluApproximate::kTanh)));
  cases.push_back(
      layer_case("nn.ReLU/matrix", {3, 5}, [](Generator&) { return std::make_shared<ReLU>(); }));
}

void add_containers(std::vector<Case>& cases) {
  using namespace nn;
  cases.push_back(layer_case("nn.Sequential/mlp", {3, 4}, [](Generator& g) {
    Layers layers;
    layers.add<Linear>(4, 6, true, g).add<GELU>().add<LayerNorm>(6).add<Linear>(6, 3, true, g);
    return std::make_shared<Sequential>(layers.take());
  }));
  cases.push_back({"nn.ModuleList/chain", [] {
                     Generator generator(kSeed);
                     auto list = std::make_shared<ModuleList<Linear>>();
                     for (int i = 0; i < 3; ++i) {
                       list->append(4, 4, true, generator);
                     }
                     return subject(list, {2, 4}, [](const ModuleList<Linear>& m, const Tensor& x) {
                       return tanh(m[2](tanh(m[1](tanh(m[0](x))))));
                     });
                   }});
}

GPTConfig small(int64_t n_embd, bool bias, double dropout = 0) {
  GPTConfig config;
  config.block_size = 5;
  config.vocab_size = 7;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = n_embd;
  config.dropout = dropout;
  config.bias = bias;
  return config;
}

// A part of a GPT, with its biases, without them, and with dropout.
template <class M>
void add_gpt_part(std::vector<Case>& cases, const std::string& name) {
  const auto make = [](const GPTConfig& config) {
    return [config](Generator& g) { return std::make_shared<M>(config, g); };
  };
  cases.push_back(layer_case(name + "/with_bias", {2, 5, 6}, make(small(6, true))));
  cases.push_back(layer_case(name + "/without_bias", {2, 4, 6}, make(small(6, false))));
  cases.push_back(layer_case(name + "/one_position", {2, 1, 6}, make(small(6, true))));
  cases.push_back(layer_case(name + "/dropout", {2, 4, 6}, make(small(6, true, 0.2))));
}

void add_attention(std::vector<Case>& cases) {
  cases.push_back(layer_case("models.SelfAttentionV1/tokens", {5, 3}, [](Generator& g) {
    return std::make_shared<SelfAttentionV1>(3, 2, g);
  }));
  cases.push_back(layer_case("models.SelfAttentionV2/with_bias", {5, 3}, [](Generator& g) {
    return std::make_shared<SelfAttentionV2>(3, 2, /*qkv_bias=*/true, g);
  }));
  cases.push_back(layer_case("models.SelfAttentionV2/without_bias", {5, 3}, [](Generator& g) {
    return std::make_shared<SelfAttentionV2>(3, 2, /*qkv_bias=*/false, g);
  }));
  cases.push_back({"models.SelfAttention/batch", [] {
                     Generator generator(kSeed);
                     return subject(std::make_shared<SelfAttention>(4, 3, 2, generator), {2, 5, 4},
                                    [](const SelfAttention& m, const Tensor& x) {
                                      return m.forward(x * 0.3).output;  // away from one-hot rows
                                    });
                   }});
  cases.push_back(layer_case("models.HeadList/dropout", {2, 5, 6}, [](Generator& g) {
    return std::make_shared<HeadList>(6, 2, 3, 5, 0.3, g);
  }));
  const auto heads = [](double dropout) {
    return [=](Generator& g) { return std::make_shared<MultiHeadAttention>(6, 2, 3, dropout, g); };
  };
  cases.push_back(layer_case("models.MultiHeadAttention/split", {2, 5, 6}, heads(0)));
  cases.push_back(layer_case("models.MultiHeadAttention/dropout", {2, 5, 6}, heads(0.3)));
  cases.push_back(layer_case("models.Head/without_scale", {2, 5, 6}, [](Generator& g) {
    return std::make_shared<Head>(6, 3, 5, g, AttentionScale::kNone);
  }));
}

void add_models(std::vector<Case>& cases) {
  const auto head = [](int64_t head_size, int64_t block_size) {
    return [=](Generator& g) { return std::make_shared<Head>(6, head_size, block_size, g); };
  };
  cases.push_back(layer_case("models.Head/full_block", {2, 5, 6}, head(3, 5)));
  cases.push_back(layer_case("models.Head/short_context", {2, 3, 6}, head(4, 8)));
  cases.push_back(layer_case("models.Head/one_position", {2, 1, 6}, head(4, 8)));

  const auto bigram = [](Generator& g) { return std::make_shared<BigramLM>(7, 5, g); };
  cases.push_back(model_case("models.BigramLM/loss", 5, Result::kLoss, bigram));
  cases.push_back(model_case("models.BigramLM/next_logits", 5, Result::kNextLogits, bigram));

  const auto head_lm = [](Generator& g) { return std::make_shared<HeadLM>(7, 6, 4, 5, g); };
  cases.push_back(model_case("models.HeadLM/loss", 5, Result::kLoss, head_lm));
  cases.push_back(model_case("models.HeadLM/short_context", 3, Result::kLogits, head_lm));
  cases.push_back(model_case("models.HeadLM/next_logits", 4, Result::kNextLogits, head_lm));

  add_gpt_part<CausalSelfAttention>(cases, "models.CausalSelfAttention");
  add_gpt_part<MLP>(cases, "models.MLP");
  add_gpt_part<Block>(cases, "models.Block");
  cases.push_back({"models.Transformer/two_layers", [] {
                     Generator generator(kSeed);
                     const Tensor ids = draw_ids(7, {2, 5}, kSeed + 2);
                     return subject(
                         std::make_shared<Transformer>(small(6, true), generator), {},
                         [ids](const Transformer& m, const Tensor&) { return m.forward(ids); });
                   }});
}

void add_gpts(std::vector<Case>& cases) {
  const auto gpt = [](const GPTConfig& config) {
    return [config](Generator& g) { return std::make_shared<GPT>(config, g, GPT::Init::kDefault); };
  };
  cases.push_back(model_case("gpt/two_layers", 5, Result::kLoss, gpt(small(12, false))));
  cases.push_back(model_case("gpt/two_layers_bias", 5, Result::kLoss, gpt(small(12, true))));
  cases.push_back(model_case("gpt/dropout", 5, Result::kLoss, gpt(small(8, true, 0.2))));
  cases.push_back(model_case("gpt/short_context", 3, Result::kLogits, gpt(small(8, true))));
  cases.push_back(model_case("gpt/next_logits", 5, Result::kNextLogits, gpt(small(8, false))));
}

}  // namespace

std::vector<Case> module_cases() {
  std::vector<Case> cases;
  add_layers(cases);
  add_containers(cases);
  add_attention(cases);
  add_models(cases);
  add_gpts(cases);
  return cases;
}

}  // namespace chargrad::tests
