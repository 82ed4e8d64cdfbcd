// One head: scale, causality, lengths.
#include "models/head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "models/bigram.h"
#include "models/head_lm.h"
#include "tests/models/lesson_testing.h"

namespace chargrad {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

// A head on two inputs: query [1, 1] for both, keys [1, 1] and [0, 0].
TEST(Head, ScalesByTheKeysLengthNotTheModelsWidth) {
  Head head(/*n_embd=*/8, /*head_size=*/2, /*block_size=*/2);
  // Input 0 is e_0 + e_1, input 1 is e_0: the query reads e_0, the key e_1.
  const Tensor query = zeros({2, 8}), key = zeros({2, 8});
  fill_(select(query, 1, 0), 1);
  fill_(select(key, 1, 1), 1);
  head.load_state_dict({{"query.weight", query}, {"key.weight", key}}, /*strict=*/false);
  const Tensor x = zeros({1, 2, 8});
  fill_(select(x, 2, 0), 1);
  fill_(narrow(select(x, 2, 1), 1, 0, 1), 1);
  const std::vector<float> w = head.forward_with_weights(x).weights.to_vector<float>();
  EXPECT_THAT(w, ElementsAre(1, 0, FloatNear(0.8044f, 5e-5f), FloatNear(0.1956f, 5e-5f)));
}

TEST(Head, OutputsAndGradientsDoNotReachTheFuture) {
  manual_seed(2);
  const Head head(4, 3, 5);
  const Tensor x = randn({1, 5, 4}).set_requires_grad();
  const Tensor changed = clone(x.detach());
  fill_(select(changed, 1, 4), 7);
  EXPECT_EQ(narrow(head.forward(x), 1, 0, 4).to_vector<float>(),
            narrow(head.forward(changed), 1, 0, 4).to_vector<float>());
  sum(select(head.forward(x), 1, 0)).backward();
  EXPECT_NE(sum(abs(select(x.grad(), 1, 0))).item(), 0);
  EXPECT_EQ(sum(abs(narrow(x.grad(), 1, 1, 4))).item(), 0);
}

TEST(Head, EveryLengthUpToTheBlock) {
  manual_seed(2);
  const Head head(4, 3, 8);
  for (const int64_t T : {1, 3, 8}) {
    const Head::Output y = head.forward_with_weights(randn({2, T, 4}));
    EXPECT_EQ(y.output.shape(), (Shape{2, T, 3}));
    for (const double row : sum(y.weights, {-1}).to_vector<double>()) {
      EXPECT_NEAR(row, 1, 1e-6);
    }
  }
  const Tensor x = randn({1, 1, 4});
  EXPECT_EQ(head.forward(x).to_vector<float>(), head.value(x).to_vector<float>());
  try {
    head.forward(randn({1, 9, 4}));
    ADD_FAILURE();
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "Head: x must be (B, T, C) with T in [1, 8], got shape [1, 9, 4]");
  }
}

TEST(Head, EqualsTheFusedOp) {
  manual_seed(2);
  const Head head(6, 4, 7);
  const Tensor x = randn({3, 7, 6});
  AttentionOptions causal;
  causal.is_causal = true;
  const Tensor fused =
      scaled_dot_product_attention(head.query(x), head.key(x), head.value(x), causal);
  EXPECT_LT(amax(abs(fused - head.forward(x))).item(), 1e-6);
}

TEST(Head, LessonsShapeIsLowerTriangular) {
  Generator generator(1337);
  const Tensor x = randn({4, 8, 384}, kFloat32, generator);
  const Head head(384, 16, 8, generator);
  const Head::Output y = head.forward_with_weights(x);
  EXPECT_EQ(y.output.shape(), (Shape{4, 8, 16}));
  EXPECT_THAT(y.weights.select(0, 0).select(0, 0).to_vector<float>(),
              ElementsAre(1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(sum(abs(triu(y.weights, 1))).item(), 0);
  EXPECT_GT(amin(tril(y.weights) + triu(ones({8, 8}), 1)).item(), 0);
  for (const double row : sum(y.weights, {-1}).to_vector<double>()) {
    EXPECT_NEAR(row, 1, 8 * 0x1p-24);
  }
  expect_printed(narrow(y.weights.select(0, 0).select(0, 1), 0, 0, 2), {0.7260, 0.2740}, 1e-4);
  EXPECT_NEAR(sum(y.output.to(kFloat64)).item(), -6.3113, 1e-4);
}

TEST(Head, Reference) {
  if (!has_seeds_reference()) {
    GTEST_SKIP() << "CHARGRAD_SHARED is not set";
  }
  Generator generator(1337);
  const Tensor x = randn({4, 8, 384}, kFloat32, generator);
  const Head head(384, 16, 8, generator);
  const Head::Output y = head.forward_with_weights(x);
  const auto& expected = seeds_reference()["head_seed1337"];
  expect_reference(narrow(x.select(0, 0).select(0, 0), 0, 0, 4), expected["x_first_row_first_4"]);
  // Queries, keys and values are sums of 384 products.
  expect_reference(y.weights.select(0, 0), expected["weights_b0"], 384);
  expect_reference(y.output.select(0, 0).select(0, 7), expected["output_b0_t7"], 384);
  // 512 numbers, each within some 1e-7.
  EXPECT_NEAR(sum(y.output.to(kFloat64)).item(), expected["output_sum"].get<double>(), 1e-4);
}

TEST(Head, WithoutTheScale) {
  Generator generator(2);
  const Tensor x = randn({1, 5, 6}, kFloat32, generator);
  Head scaled(6, 4, 5, generator);
  Head raw(6, 4, 5, generator, AttentionScale::kNone);
  raw.load_state_dict(scaled.state_dict());
  // Half the queries of a head of four numbers: the same as dividing by sqrt(4).
  Head halved(6, 4, 5, generator, AttentionScale::kNone);
  halved.load_state_dict(scaled.state_dict());
  copy_(halved.query.weight.detach(), scaled.query.weight.detach() * 0.5);
  EXPECT_LT(max_difference(scaled.attention_weights(x), halved.attention_weights(x)), 2e-7);
  EXPECT_GT(max_difference(scaled.attention_weights(x), raw.attention_weights(x)), 1e-2);
}

TEST(Head, TrilIsABufferAndTakesNoGradient) {
  const Head head(4, 3, 5);
  EXPECT_EQ(head.named_parameters().size(), 3u);
  EXPECT_EQ(head.named_buffers().size(), 1u);
  EXPECT_FALSE(head.tril.requires_grad());
}

TEST(HeadLM, ShapesAndCausality) {
  manual_seed(2);
  const HeadLM model(7, 6, 4, 5);
  EXPECT_EQ(model.block_size(), 5);
  EXPECT_EQ(model.vocab_size(), 7);
  EXPECT_EQ(model.forward(randint(0, 7, {2, 5})).shape(), (Shape{2, 5, 7}));
}

TEST(HeadLM, AttentionWeightsAreTheHeads) {
  Generator generator(2);
  const HeadLM model(7, 6, 4, 5, generator, AttentionScale::kNone);
  const Tensor weights = model.attention_weights(tensor({{1, 2, 3}}, kInt64));
  EXPECT_EQ(weights.shape(), (Shape{1, 3, 3}));
  EXPECT_EQ(sum(abs(triu(weights, 1))).item(), 0);
  EXPECT_NEAR(sum(weights).item(), 3, 1e-6);
}

TEST(BigramLM, TableIsVocabularySquaredAndLooksAtOneCharacter) {
  manual_seed(2);
  const BigramLM model(5, 3);
  EXPECT_EQ(model.token_embedding_table.weight.shape(), (Shape{5, 5}));
  const Tensor ids = tensor({{0, 4, 2}}, kInt64);
  EXPECT_EQ(model.next_logits(ids).to_vector<float>(),
            select(model.token_embedding_table.weight, 0, 2).to_vector<float>());
}

}  // namespace
}  // namespace chargrad
