#include "nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "nn/activation.h"
#include "nn/containers.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "tests/error_text.h"

namespace chargrad::nn {
namespace {

using testing::ElementsAre;

// A parameter, a buffer, two submodules, one of whose weights is tied to the other's.
class Net : public Module {
 public:
  Net() : first(2, 3), second(2, 3, /*with_bias=*/false), drop(0.5) {
    scale = ones({2});
    mask = zeros({2}, kBool);
    register_parameter("scale", scale);
    register_buffer("mask", mask);
    register_module("first", first);
    register_module("second", second);
    register_module("drop", drop);
    second.weight = first.weight;
  }

  Tensor scale, mask;
  Linear first, second;
  Dropout drop;
  using Module::register_module;
  using Module::register_parameter;
};

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors) {
    result.push_back(name);
  }
  return result;
}

TEST(Module, NamesAreOwnFirstThenByModuleAndTiedOnesOnce) {
  const Net net;
  EXPECT_THAT(names(net.named_parameters()), ElementsAre("scale", "first.weight", "first.bias"));
  EXPECT_THAT(names(net.named_buffers()), ElementsAre("mask"));
  EXPECT_THAT(names(net.state_dict()),
              ElementsAre("scale", "mask", "first.weight", "first.bias", "second.weight"));
  for (const Tensor& p : net.parameters()) {
    EXPECT_TRUE(p.requires_grad());
  }
  EXPECT_FALSE(net.mask.requires_grad());
}

TEST(Module, LoadStateDictCopiesValues) {
  manual_seed(1);
  const Net from;
  Net to;
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(to.first.weight.to_vector<float>(), from.first.weight.to_vector<float>());
  EXPECT_NE(to.first.weight.raw_data(), from.first.weight.raw_data());
  EXPECT_TRUE(to.first.weight.requires_grad());
}

TEST(Module, LoadStateDictAcceptsATiedWeightUnderOneName) {
  const Net from;
  NamedTensors state = from.state_dict();
  state.pop_back();  // second.weight
  Net to;
  to.load_state_dict(state);
  EXPECT_EQ(to.second.weight.to_vector<float>(), from.first.weight.to_vector<float>());
}

TEST(Module, LoadStateDictListsWhatIsWrongAndChangesNothing) {
  Net net;
  const std::vector<float> before = net.first.weight.to_vector<float>();
  const NamedTensors state{{"first.weight", zeros({3, 2})},
                           {"first.bias", zeros({4})},
                           {"mask", zeros({2}, kBool)},
                           {"extra", zeros({1})}};
  EXPECT_EQ(error_text<std::invalid_argument>([&] { net.load_state_dict(state); }),
            "load_state_dict: first.bias has shape [4], expected [3]; scale is missing; extra is "
            "unexpected");
  EXPECT_EQ(net.first.weight.to_vector<float>(), before);
  net.load_state_dict({{"first.weight", zeros({3, 2})}, {"extra", zeros({1})}}, /*strict=*/false);
  EXPECT_EQ(sum(abs(net.first.weight)).item(), 0);
}

TEST(Module, TrainAndEvalReachEveryModule) {
  Net net;
  EXPECT_TRUE(net.drop.is_training());
  net.eval();
  EXPECT_FALSE(net.is_training());
  EXPECT_FALSE(net.drop.is_training());
  net.train();
  EXPECT_TRUE(net.drop.is_training());
}

TEST(Module, ZeroGradDropsGradients) {
  Net net;
  sum(net.first(ones({1, 2}))).backward();
  EXPECT_TRUE(net.first.weight.grad().defined());
  net.zero_grad();
  EXPECT_FALSE(net.first.weight.grad().defined());
}

TEST(Module, ToConvertsFloatingTensorsAndKeepsTies) {
  Net net;
  net.to(kFloat64);
  EXPECT_EQ(net.first.weight.dtype(), kFloat64);
  EXPECT_EQ(net.mask.dtype(), kBool);
  EXPECT_EQ(net.first.weight.impl(), net.second.weight.impl());
  EXPECT_TRUE(net.first.weight.requires_grad());
  EXPECT_EQ(net.first(ones({1, 2}, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(error_text<std::invalid_argument>([&] { net.to(kInt64); }),
            "to: a module's dtype must be floating, got int64");
}

TEST(Module, ApplyVisitsDeeperModulesFirst) {
  Net net;
  std::vector<Module*> seen;
  net.apply([&seen](Module& m) { seen.push_back(&m); });
  EXPECT_THAT(seen, ElementsAre(&net.first, &net.second, &net.drop, &net));
}

TEST(Module, NamesMustBeFreeAndWithoutDots) {
  Net net;
  Tensor t = ones({1});
  EXPECT_EQ(error_text<std::invalid_argument>([&] { net.register_parameter("scale", t); }),
            "register_parameter: the name \"scale\" is taken");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { net.register_parameter("a.b", t); }),
            "register_parameter: a name must not be empty nor contain a dot, got \"a.b\"");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { net.register_module("first", net.second); }),
            "register_module: the name \"first\" is taken");
}

TEST(Linear, DrawsWeightThenBias) {
  // PyTorch 2.13: torch.manual_seed(1337); torch.nn.Linear(4, 3).
  manual_seed(1337);
  const Linear linear(4, 3);
  EXPECT_THAT(linear.weight.to_vector<float>(),
              ElementsAre(-0x1.afcda4p-2f, -0x1.1f43p-8f, 0x1.f835cp-4f, -0x1.3db18p-4f,
                          -0x1.32cd64p-2f, -0x1.e2a89cp-2f, 0x1.5caa7p-4f, 0x1.92cadp-3f,
                          -0x1.4ba238p-2f, -0x1.ec7d7p-3f, 0x1.ab22ap-3f, 0x1.4b848p-4f));
  EXPECT_THAT(linear.bias.to_vector<float>(),
              ElementsAre(-0x1.c53bdcp-2f, 0x1.114618p-2f, 0x1.82e6d8p-2f));
}

TEST(Linear, AppliesWeightAndBias) {
  Linear linear(2, 1);
  linear.load_state_dict({{"weight", tensor({{2, 3}})}, {"bias", tensor({10})}});
  EXPECT_EQ(linear(tensor({{1, 1}})).item(), 15);
  EXPECT_FALSE(Linear(2, 1, /*with_bias=*/false).bias.defined());
  EXPECT_EQ(error_text<std::invalid_argument>([] { Linear(0, 3); }),
            "Linear: in_features and out_features must be positive, got 0 and 3");
}

TEST(Embedding, DrawsNormalRows) {
  // PyTorch 2.13: torch.manual_seed(1337); torch.nn.Embedding(4, 5).
  manual_seed(1337);
  const Embedding embedding(4, 5);
  const std::vector<float> w = embedding.weight.to_vector<float>();
  EXPECT_EQ(w[0], 0x1.72386p-3f);
  EXPECT_EQ(w[1], -0x1.1eabd6p-4f);
  EXPECT_EQ(embedding(tensor({3, 0}, kInt64)).shape(), (Shape{2, 5}));
  EXPECT_EQ(error_text<std::invalid_argument>([] { Embedding(3, 0); }),
            "Embedding: num_embeddings and embedding_dim must be positive, got 3 and 0");
}

TEST(LayerNorm, StartsAsPlainNormalisation) {
  const LayerNorm norm(2);
  EXPECT_NEAR(norm(tensor({1, 3})).item({1}), 1.0, 1e-5);
  EXPECT_FALSE(LayerNorm(2, /*with_bias=*/false).bias.defined());
  EXPECT_EQ(error_text<std::invalid_argument>([] { LayerNorm(0); }),
            "LayerNorm: size must be positive, got 0");
}

TEST(LayerNorm, TakesItsEpsilon) {
  EXPECT_LT(LayerNorm(2, true, 1.0)(tensor({1, 3})).item({1}), 0.8);
}

TEST(Dropout, OnlyInTraining) {
  Dropout drop(0.5);
  const Tensor x = ones({1000});
  const double kept = sum(drop(x)).item() / 2;
  EXPECT_NEAR(kept, 500, 80);  // five standard deviations of 16
  drop.eval();
  EXPECT_EQ(sum(drop(x)).item(), 1000);
  EXPECT_EQ(error_text<std::invalid_argument>([] { Dropout(1.5); }),
            "Dropout: p must be in [0, 1], got 1.5");
}

TEST(Sequential, ChainsLayersUnderNumberedNames) {
  const Sequential mlp(Layers().add<Linear>(2, 3).add<ReLU>().add<Linear>(3, 1).take());
  EXPECT_THAT(names(mlp.named_parameters()),
              ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
  const Tensor x = ones({1, 2});
  EXPECT_EQ(mlp(x).item(), mlp[2].forward(relu(mlp[0].forward(x))).item());
  EXPECT_EQ(mlp.size(), 3u);
}

TEST(GELU, TakesTheForm) {
  const Tensor x = tensor({1});
  EXPECT_NEAR(GELU()(x).item(), 0.8413447, 1e-6);
  EXPECT_NEAR(GELU(GeluApproximate::kTanh)(x).item(), 0.8411920, 1e-6);
}

TEST(ModuleList, KeepsOrderAndNames) {
  ModuleList<Linear> list;
  list.append(1, 1);
  list.append(1, 2, false);
  EXPECT_THAT(names(list.named_parameters()), ElementsAre("0.weight", "0.bias", "1.weight"));
  EXPECT_EQ(list[1].weight.shape(), (Shape{2, 1}));
}

TEST(Module, NamedModulesParentsFirst) {
  Net net;
  Sequential outer(Layers().add<Linear>(2, 2).add<ReLU>().take());
  net.register_module("outer", outer);
  std::vector<std::string> names;
  for (const auto& [name, module] : net.named_modules()) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ElementsAre("", "first", "second", "drop", "outer", "outer.0", "outer.1"));
  EXPECT_EQ(net.named_modules()[1].second, &net.first);
}

TEST(Layer, IsAScopeOfAProfileThatKnowsIt) {
  const NoGradGuard no_grad;
  const Net net;
  const Linear other(2, 2);
  profile::Profiler::Names names;
  for (const auto& [name, module] : net.named_modules()) {
    names.emplace(module, name);
  }
  profile::Profiler profiler(names);
  {
    const profile::Recording recording(&profiler);
    net.second(ones({1, 2}));
    other(ones({1, 2}));
  }
  std::vector<std::string> scopes;
  for (const profile::Row& row : profiler.rows()) {
    if (row.op == "linear") {
      scopes.push_back(row.scope);
    }
  }
  EXPECT_THAT(scopes, ElementsAre("", "second"));
}

}  // namespace
}  // namespace chargrad::nn
