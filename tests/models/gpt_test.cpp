#include "models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

using testing::HasSubstr;

GPTConfig small() {
  GPTConfig c;
  c.block_size = 6;
  c.vocab_size = 11;
  c.n_layer = 2;
  c.n_head = 2;
  c.n_embd = 8;
  c.bias = true;
  return c;
}

Tensor some_ids(int64_t B, int64_t T) {
  return randint(0, 11, {B, T});
}

TEST(GPT, ParametersHaveNanoGPTsNames) {
  const GPT gpt(small());
  std::vector<std::string> names;
  for (const auto& [name, p] : gpt.named_parameters()) {
    names.push_back(name);
  }
  EXPECT_EQ(names.size(), 2u + 2 * 12 + 2);
  EXPECT_EQ(names[0], "transformer.wte.weight");
  EXPECT_EQ(names[1], "transformer.wpe.weight");
  EXPECT_EQ(names[2], "transformer.h.0.ln_1.weight");
  EXPECT_THAT(names, testing::IsSupersetOf(
                         {"transformer.h.1.attn.c_attn.bias", "transformer.h.1.attn.c_proj.weight",
                          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.bias",
                          "transformer.ln_f.bias"}));
}

TEST(GPT, HeadIsTiedToTheTokenTable) {
  GPT gpt(small());
  EXPECT_EQ(gpt.lm_head.weight.impl(), gpt.transformer.wte.weight.impl());
  gpt.to(kFloat64);
  EXPECT_EQ(gpt.lm_head.weight.impl(), gpt.transformer.wte.weight.impl());
}

TEST(GPT, CountsParametersAsNanoGPT) {
  // nanoGPT prints "number of parameters: 10.65M" for its character recipe.
  GPTConfig c;
  c.block_size = 256;
  c.vocab_size = 65;
  c.n_layer = c.n_head = 6;
  c.n_embd = 384;
  const GPT gpt(c);
  EXPECT_EQ(gpt.num_params(), 65 * 384 + 6 * (12 * 384 * 384 + 2 * 384) + 384);
  EXPECT_EQ(fmt::format("{:.2f}M", static_cast<double>(gpt.num_params()) / 1e6), "10.65M");
}

TEST(GPT, InitialisationHasGPT2sDeviations) {
  GPTConfig c = small();
  c.n_embd = 128;
  manual_seed(1);
  const GPT gpt(c);
  const auto deviation = [](const Tensor& x) { return std::sqrt(var(x).item()); };
  // Of 3 * 128 * 128 draws, so within 1.5 %; of 128 * 128 within 3 %: five standard errors.
  EXPECT_NEAR(deviation(gpt.transformer.h[0].attn.c_attn.weight), 0.02, 0.02 * 0.016);
  EXPECT_NEAR(deviation(gpt.transformer.h[1].attn.c_proj.weight), 0.01, 0.01 * 0.028);
  EXPECT_EQ(sum(abs(gpt.transformer.h[0].mlp.c_fc.bias)).item(), 0);
}

TEST(GPT, StartsNearTheUniformGuess) {
  manual_seed(3);
  const GPT gpt(small());
  const Tensor ids = some_ids(4, 6), targets = some_ids(4, 6);
  EXPECT_NEAR(gpt.loss(ids, targets).item(), std::log(11.0), 0.05);
}

TEST(GPT, OutputsDoNotDependOnLaterInputs) {
  manual_seed(3);
  const GPT gpt(small(), default_generator(), GPT::Init::kDefault);
  const Tensor a = some_ids(1, 6);
  const Tensor b = clone(a);
  fill_(narrow(b, 1, 4, 2), 10 - a.item({0, 4}));
  const std::vector<float> ya = narrow(gpt.forward(a), 1, 0, 4).to_vector<float>();
  const std::vector<float> yb = narrow(gpt.forward(b), 1, 0, 4).to_vector<float>();
  EXPECT_EQ(ya, yb);
  EXPECT_NE(gpt.forward(a).item({0, 5, 0}), gpt.forward(b).item({0, 5, 0}));
}

TEST(GPT, NextLogitsAreTheLastPositions) {
  manual_seed(3);
  const GPT gpt(small());
  const Tensor ids = some_ids(2, 5);
  EXPECT_EQ(gpt.next_logits(ids).to_vector<float>(),
            select(gpt.forward(ids), 1, -1).to_vector<float>());
}

TEST(GPT, DropoutActsInTrainingOnly) {
  GPTConfig c = small();
  c.dropout = 0.5;
  GPT gpt(c);
  const Tensor ids = some_ids(2, 6);
  EXPECT_NE(gpt.forward(ids).to_vector<float>(), gpt.forward(ids).to_vector<float>());
  gpt.eval();
  EXPECT_EQ(gpt.forward(ids).to_vector<float>(), gpt.forward(ids).to_vector<float>());
}

TEST(GPT, OverfitsOneBatch) {
  manual_seed(3);
  GPT gpt(small());
  // The rows begin differently, so that every target can be known.
  const Tensor ids = tensor({{0, 1, 2, 3, 4, 5}, {5, 6, 7, 8, 9, 10}}, kInt64);
  const Tensor targets = some_ids(2, 6);
  for (int step = 0; step < 300; ++step) {
    gpt.zero_grad();
    gpt.loss(ids, targets).backward();
    const NoGradGuard no_grad;
    for (const Tensor& p : gpt.parameters()) {
      add_(p, p.grad(), -0.5);
    }
  }
  EXPECT_LT(gpt.loss(ids, targets).item(), 0.1);
}

TEST(GPT, RefusesWrongIdsAndConfigs) {
  const GPT gpt(small());
  EXPECT_EQ(error_text<std::invalid_argument>([&] { gpt.forward(some_ids(1, 7)); }),
            "GPT: the context length must be in [1, 6], got 7");
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              gpt.forward(ones({1, 3}));
            }),
            "GPT: ids must be int64 of shape [B, T], got float32 of shape [1, 3]");
  EXPECT_THAT(error_text<std::invalid_argument>([&] {
                gpt.forward(full({1, 3}, 11, kInt64));
              }),
              HasSubstr("11"));
  GPTConfig c = small();
  c.n_head = 3;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { GPT{c}; }),
            "GPT: n_head must divide n_embd, got 3 and 8");
  c.n_layer = 0;
  EXPECT_THAT(error_text<std::invalid_argument>([&] { GPT{c}; }),
              HasSubstr("GPT: sizes must be positive"));
}

}  // namespace
}  // namespace chargrad
