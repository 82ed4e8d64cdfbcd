// The six-token lesson: simplified self-attention, its two trainable versions, the thermostat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/self_attention_v1.h"
#include "models/self_attention_v2.h"
#include "models/simplified_self_attention.h"
#include "tests/error_text.h"
#include "tests/models/lesson_testing.h"

namespace chargrad {
namespace {

constexpr double kUnit = 1e-4;  // of the last digit that the lesson prints
constexpr int64_t kSat = 2;

SelfAttentionV1 lesson_v1() {
  Generator generator(123);
  return SelfAttentionV1(3, 2, generator);
}

SelfAttentionV2 lesson_v2() {
  Generator generator(789);
  return SelfAttentionV2(3, 2, /*qkv_bias=*/false, generator);
}

TEST(SimplifiedSelfAttention, SixTokens) {
  const AttentionSteps s = simplified_self_attention(six_tokens());
  // Scores by hand: The . The = 0.43^2 + 0.15^2 + 0.89^2, cat . sat = .55*.57 + .87*.85 + .66*.64.
  EXPECT_NEAR(s.scores.item({0, 0}), 0.9995, 1e-6);
  EXPECT_NEAR(s.scores.item({1, 2}), 1.4754, 1e-6);
  expect_printed(s.weights.select(0, kSat), {0.1390, 0.2369, 0.2326, 0.1242, 0.1108, 0.1565},
                 kUnit);
  expect_printed(s.output.select(0, kSat), {0.4431, 0.6496, 0.5671}, kUnit);
  EXPECT_EQ(error_text<std::invalid_argument>([] { simplified_self_attention(zeros({3})); }),
            "simplified_self_attention: x must be (T, C), got shape [3]");
}

TEST(SimplifiedSelfAttention, Reference) {
  if (!has_seeds_reference()) {
    GTEST_SKIP() << "CHARGRAD_SHARED is not set";
  }
  const AttentionSteps s = simplified_self_attention(six_tokens());
  const auto& expected = seeds_reference()["simplified"];
  expect_reference(s.scores, expected["scores"]);
  expect_reference(s.weights, expected["attn_weights"]);
  expect_reference(s.output, expected["output"]);
}

TEST(SimplifiedSelfAttention, IsV1WithIdentityMatrices) {
  SelfAttentionV1 v1(3, 3);
  v1.load_state_dict({{"W_query", eye(3)}, {"W_key", eye(3)}, {"W_value", eye(3)}});
  const Tensor x = six_tokens();
  // The trainable version divides by sqrt(3); the simplified one leaves that out unless told. A
  // product with the reciprocal may differ from that in a score's last digit, some 2e-7.
  EXPECT_LT(max_difference(v1.forward(x), simplified_self_attention(x, 1 / std::sqrt(3.0)).output),
            1e-6);
  EXPECT_GT(max_difference(v1.forward(x), simplified_self_attention(x).output), 100 * 1e-6);
}

TEST(SelfAttentionV1, QueryMatrixOfSeed123) {
  expect_printed(lesson_v1().W_query, {0.2961, 0.5166, 0.2517, 0.6886, 0.0740, 0.8665}, kUnit);
}

TEST(SelfAttentionV1, OneTokenEndToEnd) {
  const SelfAttentionV1 v1 = lesson_v1();
  const AttentionSteps s = v1.steps(six_tokens());
  expect_printed(s.queries.select(0, kSat), {0.4300, 1.4343}, kUnit);
  expect_printed(s.keys.select(0, kSat), {0.4361, 1.1156}, kUnit);
  expect_printed(s.values.select(0, kSat), {0.3879, 0.9831}, kUnit);
  expect_printed(s.scores.select(0, kSat), {1.2544, 1.8284, 1.7877, 1.0654, 0.5508, 1.5238}, kUnit);
  expect_printed(s.weights.select(0, kSat), {0.1503, 0.2256, 0.2192, 0.1315, 0.0914, 0.1819},
                 kUnit);
  expect_printed(s.output.select(0, kSat), {0.3058, 0.8203}, kUnit);
}

TEST(SelfAttentionV1, DotProductsByHand) {
  const SelfAttentionV1 v1 = lesson_v1();
  const Tensor x = six_tokens().select(0, kSat);
  const double a = sum(x * v1.W_query.select(1, 0)).item();
  const double b = sum(x * v1.W_query.select(1, 1)).item();
  EXPECT_NEAR(a, 0.4300, kUnit);
  EXPECT_NEAR(b, 1.4343, kUnit);
  const std::vector<double> product = matmul(x, v1.W_query).to_vector<double>();
  EXPECT_NEAR(product[0], a, 4 * 0x1p-24);
  EXPECT_NEAR(product[1], b, 4 * 0x1p-24);
  // The printed factors give the printed score.
  EXPECT_NEAR(0.4300 * 0.4433 + 1.4343 * 1.1419, 1.8284, kUnit);
  expect_printed(v1.steps(six_tokens()).keys.select(0, 1), {0.4433, 1.1419}, kUnit);
}

TEST(SelfAttentionV1, AllSixRows) {
  expect_printed(lesson_v1().forward(six_tokens()),
                 {0.2996, 0.8053, 0.3061, 0.8210, 0.3058, 0.8203, 0.2948, 0.7939, 0.2927, 0.7891,
                  0.2990, 0.8040},
                 kUnit);
}

TEST(SelfAttentionV1, Reference) {
  if (!has_seeds_reference()) {
    GTEST_SKIP() << "CHARGRAD_SHARED is not set";
  }
  const SelfAttentionV1 v1 = lesson_v1();
  const AttentionSteps s = v1.steps(six_tokens());
  const auto& expected = seeds_reference()["v1_seed123"];
  expect_reference(v1.W_query, expected["W_query"]);
  expect_reference(v1.W_key, expected["W_key"]);
  expect_reference(v1.W_value, expected["W_value"]);
  expect_reference(s.queries, expected["queries"]);
  expect_reference(s.keys, expected["keys"]);
  expect_reference(s.values, expected["values"]);
  expect_reference(s.scores, expected["raw_scores"]);
  expect_reference(s.weights, expected["attn_weights"]);
  expect_reference(s.output, expected["output"]);
  sum(pow(s.output, 2)).backward();
  // Six outputs, each a blend of six values by weights whose derivatives cancel.
  constexpr int kTerms = 6 * 6 * 2;
  const auto& gradients = expected["grad_of_sum_of_squares"];
  expect_reference(v1.W_query.grad(), gradients["W_query"], kTerms);
  expect_reference(v1.W_key.grad(), gradients["W_key"], kTerms);
  expect_reference(v1.W_value.grad(), gradients["W_value"], kTerms);
}

TEST(SelfAttentionV1, ParametersAndPrintedGradFn) {
  const SelfAttentionV1 v1 = lesson_v1();
  std::vector<std::string> names;
  for (const auto& [name, parameter] : v1.named_parameters()) {
    EXPECT_TRUE(parameter.requires_grad()) << name;
    names.push_back(name);
  }
  EXPECT_THAT(names, testing::ElementsAre("W_query", "W_key", "W_value"));
  const Tensor x = six_tokens().select(0, kSat);
  EXPECT_EQ(to_string(matmul(x, v1.W_query.detach())), "tensor([0.4300, 1.4343])");
  EXPECT_EQ(to_string(matmul(x, v1.W_query)),
            "tensor([0.4300, 1.4343], grad_fn=<SqueezeBackward>)");
}

TEST(SelfAttentionV1, SameNumbersWithoutGradients) {
  const SelfAttentionV1 on = lesson_v1(), off = lesson_v1();
  for (Tensor parameter : off.parameters()) {
    parameter.set_requires_grad(false);
  }
  EXPECT_EQ(on.forward(six_tokens()).to_vector<float>(),
            off.forward(six_tokens()).to_vector<float>());
  EXPECT_TRUE(on.forward(six_tokens()).requires_grad());
  EXPECT_FALSE(off.forward(six_tokens()).requires_grad());
}

TEST(SelfAttentionV2, SatOfSeed789) {
  expect_printed(lesson_v2().forward(six_tokens()).select(0, kSat), {-0.0749, 0.0702}, kUnit);
}

TEST(SelfAttentionV2, Reference) {
  if (!has_seeds_reference()) {
    GTEST_SKIP() << "CHARGRAD_SHARED is not set";
  }
  const SelfAttentionV2 v2 = lesson_v2();
  const AttentionSteps s = v2.steps(six_tokens());
  const auto& expected = seeds_reference()["v2_seed789"];
  expect_reference(v2.W_query.weight, expected["weights"][0]);
  expect_reference(v2.W_key.weight, expected["weights"][1]);
  expect_reference(v2.W_value.weight, expected["weights"][2]);
  expect_reference(s.weights, expected["attn_weights"]);
  expect_reference(s.output, expected["output"]);
}

TEST(SelfAttentionV2, TransposedCopyMakesV1Equal) {
  const SelfAttentionV2 v2 = lesson_v2();
  SelfAttentionV1 v1(3, 2);
  v1.load_state_dict({{"W_query", v2.W_query.weight.detach().transpose(0, 1)},
                      {"W_key", v2.W_key.weight.detach().transpose(0, 1)},
                      {"W_value", v2.W_value.weight.detach().transpose(0, 1)}});
  // Sums of 2, 3 and 6 products of numbers below 1.
  EXPECT_LT(max_difference(v1.forward(six_tokens()), v2.forward(six_tokens())), 16 * 0x1p-24);
}

int64_t parameter_count(const nn::Module& module) {
  int64_t count = 0;
  for (const Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

TEST(SelfAttentionV2, NamedParametersRequireGradAndTheNumbersDoNotDependOnIt) {
  const SelfAttentionV2 on = lesson_v2(), off = lesson_v2();
  std::vector<std::string> names;
  for (const auto& [name, parameter] : on.named_parameters()) {
    names.push_back(name);
    EXPECT_TRUE(parameter.requires_grad()) << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"W_query.weight", "W_key.weight", "W_value.weight"}));
  for (Tensor parameter : off.parameters()) {
    parameter.set_requires_grad(false);
  }
  EXPECT_EQ(on.forward(six_tokens()).to_vector<float>(),
            off.forward(six_tokens()).to_vector<float>());
  EXPECT_FALSE(off.forward(six_tokens()).requires_grad());
}

TEST(SelfAttentionV2, ParameterCounts) {
  EXPECT_EQ(parameter_count(lesson_v2()), 18);
  EXPECT_EQ(parameter_count(SelfAttentionV2(3, 2, /*qkv_bias=*/true)), 24);
  EXPECT_EQ(parameter_count(SelfAttentionV2(768, 768)), 1769472);
}

TEST(SelfAttentionV2, BiasIsAddedToQueriesKeysAndValues) {
  Generator generator(5);
  const SelfAttentionV2 v2(3, 2, /*qkv_bias=*/true, generator);
  const AttentionSteps s = v2.steps(six_tokens());
  const Tensor x = six_tokens();
  const auto plain = [&x](const nn::Linear& layer) { return linear(x, layer.weight); };
  EXPECT_LT(max_difference(s.queries - plain(v2.W_query), v2.W_query.bias), 4 * 0x1p-24);
  EXPECT_LT(max_difference(s.keys - plain(v2.W_key), v2.W_key.bias), 4 * 0x1p-24);
  EXPECT_LT(max_difference(s.values - plain(v2.W_value), v2.W_value.bias), 4 * 0x1p-24);
}

TEST(TrainableAttention, RefusesOtherShapes) {
  const SelfAttentionV1 v1(3, 2);
  const SelfAttentionV2 v2(3, 2);
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              v1.forward(zeros({1, 6, 3}));
            }),
            "SelfAttentionV1: x must be (T, d_in), got shape [1, 6, 3]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { v2.forward(zeros({3})); }),
            "SelfAttentionV2: x must be (T, d_in), got shape [3]");
  EXPECT_EQ(error_text<std::invalid_argument>([] { SelfAttentionV1(0, 2); }),
            "SelfAttentionV1: d_in and d_out must be positive, got 0 and 2");
}

TEST(Thermostat, FiveScoresAndEightTimesThem) {
  const Tensor s = tensor({0.1, -0.2, 0.3, -0.2, 0.5});
  expect_printed(softmax(s), {0.192, 0.143, 0.235, 0.143, 0.287}, 1e-3);
  expect_printed(softmax(s * 8), {0.033, 0.003, 0.162, 0.003, 0.800}, 1e-3);
  expect_printed(softmax(s), {0.1925, 0.1426, 0.2351, 0.1426, 0.2872}, kUnit);
  expect_printed(softmax(s * 8), {0.0326, 0.0030, 0.1615, 0.0030, 0.8000}, kUnit);
}

TEST(Thermostat, NearOneHotRowHasNoGradient) {
  const auto derivative = [](double scale) {
    const Tensor z = tensor({8.0, 0.0}, kFloat64).set_requires_grad();
    const Tensor p = softmax(z * scale);
    return std::pair(p.to_vector<double>(), [&] {
      const Tensor scaled = (z.detach() * scale).set_requires_grad();
      softmax(scaled).select(0, 0).backward();
      return scaled.grad().to_vector<double>();
    }());
  };
  const auto [p, hot] = derivative(1);
  EXPECT_NEAR(p[0], 0.9997, kUnit);
  EXPECT_NEAR(p[1], 0.0003, kUnit);
  EXPECT_NEAR(hot[0], 3.352e-4, 1e-7);
  EXPECT_NEAR(hot[1], -3.352e-4, 1e-7);
  const auto [soft_p, soft] = derivative(1 / std::sqrt(64.0));
  EXPECT_NEAR(soft_p[0], 0.7311, kUnit);
  EXPECT_NEAR(soft[0], 0.19661, 1e-5);
  EXPECT_NEAR(soft[0] / hot[0], 586, 1);
}

}  // namespace
}  // namespace chargrad
