// Filters, limits and reproducibility of drawing.
#include "models/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops.h"
#include "models/bigram.h"
#include "models/gpt.h"

namespace chargrad {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

std::vector<float> probabilities(const Tensor& p, const SamplingOptions& options) {
  return next_probabilities(log(p).reshape({1, p.numel()}), options).to_vector<float>();
}

SamplingOptions with(double temperature, int64_t top_k = 0, double top_p = 1) {
  return {temperature, top_k, top_p};
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no exception";
}

TEST(NextProbabilities, TemperatureDividesTheLogits) {
  const Tensor p = tensor({0.5, 0.3, 0.2});
  EXPECT_THAT(probabilities(p, with(1)),
              ElementsAre(FloatNear(0.5f, 1e-6f), FloatNear(0.3f, 1e-6f), FloatNear(0.2f, 1e-6f)));
  // Half the temperature squares the odds.
  EXPECT_THAT(probabilities(p, with(0.5)),
              ElementsAre(FloatNear(25 / 38.f, 1e-6f), FloatNear(9 / 38.f, 1e-6f),
                          FloatNear(4 / 38.f, 1e-6f)));
}

TEST(NextProbabilities, ExtremeTemperatures) {
  const Tensor p = tensor({0.5, 0.3, 0.2});
  for (const double cold : {0.0, 1e-300, 1e-30}) {
    EXPECT_THAT(probabilities(p, with(cold)), ElementsAre(1, 0, 0)) << cold;
  }
  for (const double hot : {1e30, 1e300}) {
    EXPECT_THAT(probabilities(p, with(hot)), testing::Each(FloatNear(1 / 3.f, 1e-6f))) << hot;
  }
}

TEST(NextProbabilities, TopK) {
  const Tensor p = tensor({0.2, 0.5, 0.3});
  EXPECT_THAT(probabilities(p, with(1, 2)),
              ElementsAre(0, FloatNear(0.625f, 1e-6f), FloatNear(0.375f, 1e-6f)));
  EXPECT_THAT(probabilities(p, with(1, 1)), ElementsAre(0, 1, 0));
  EXPECT_EQ(probabilities(p, with(1, 200)), probabilities(p, with(1)));
  EXPECT_EQ(probabilities(p, with(1, 0)), probabilities(p, with(1)));
}

TEST(NextProbabilities, TopKOfEqualOnesTakesTheFirst) {
  EXPECT_THAT(probabilities(full({4}, 0.25), with(1, 1)), ElementsAre(1, 0, 0, 0));
}

TEST(NextProbabilities, TopP) {
  const Tensor p = tensor({0.5, 0.3, 0.2});
  EXPECT_THAT(probabilities(p, with(1, 0, 0)), ElementsAre(1, 0, 0));
  EXPECT_THAT(probabilities(p, with(1, 0, 1e-9)), ElementsAre(1, 0, 0));
  EXPECT_EQ(probabilities(p, with(1, 0, 1)), probabilities(p, with(1)));
}

TEST(NextProbabilities, TopPOnABoundaryTakesNoMore) {
  EXPECT_THAT(probabilities(tensor({0.3, 0.1, 0.1, 0.5}), with(1, 0, 0.8)),
              ElementsAre(FloatNear(0.375f, 1e-6f), 0, 0, FloatNear(0.625f, 1e-6f)));
}

// Against filters that sort and add up whole rows, on rows with equal numbers.
TEST(NextProbabilities, FiltersAgreeWithSorting) {
  manual_seed(9);
  const int64_t V = 23;
  const Tensor logits = randint(0, 9, {20, V}).to(kFloat32) * 0.5;
  const Tensor p = softmax(logits, 1);
  for (const int64_t top_k : {0, 1, 2, 7, 22, 23}) {
    for (const double top_p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      const Tensor got = next_probabilities(logits, with(1, top_k, top_p));
      for (int64_t row = 0; row < logits.size(0); ++row) {
        const std::vector<double> all = select(p, 0, row).to_vector<double>();
        std::vector<size_t> order(all.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return all[a] > all[b]; });
        order.resize(static_cast<size_t>(top_k == 0 ? V : top_k));
        double total = 0, reached = 0, kept = 0;
        for (const size_t i : order) {
          total += all[i];
        }
        size_t n = 0;
        while (n < order.size() && (n == 0 || reached < (top_p - 1e-6) * total)) {
          reached += all[order[n++]];
        }
        kept = top_p == 1 ? total : reached;
        std::vector<double> expected(all.size());
        for (size_t i = 0; i < (top_p == 1 ? order.size() : n); ++i) {
          expected[order[i]] = all[order[i]] / kept;
        }
        // Some roundings of float32 numbers below 1.
        EXPECT_THAT(select(got, 0, row).to_vector<double>(),
                    testing::Pointwise(testing::DoubleNear(1e-6), expected))
            << top_k << ' ' << top_p << ' ' << row;
      }
    }
  }
}

TEST(NextProbabilities, RefusesNonsense) {
  const Tensor logits = zeros({1, 3});
  const auto try_it = [&](const SamplingOptions& o) {
    return error_of([&] { next_probabilities(logits, o); });
  };
  EXPECT_EQ(try_it(with(-1)), "generate: temperature must be finite and not negative, got -1");
  EXPECT_THAT(try_it(with(NAN)), HasSubstr("temperature"));
  EXPECT_THAT(try_it(with(INFINITY)), HasSubstr("temperature"));
  EXPECT_EQ(try_it(with(1, -1)), "generate: top_k must not be negative, got -1");
  EXPECT_EQ(try_it(with(1, 0, 1.5)), "generate: top_p must be in [0, 1], got 1.5");
  EXPECT_THAT(error_of([] {
                next_probabilities(full({1, 2}, NAN), {});
              }),
              HasSubstr("non-finite logits"));
  EXPECT_THAT(error_of([] { next_probabilities(zeros({3}), {}); }),
              HasSubstr("logits must have shape [B, V], got [3]"));
}

GPT small_gpt() {
  manual_seed(4);
  GPTConfig c;
  c.block_size = 8;
  c.vocab_size = 5;
  c.n_layer = 1;
  c.n_head = 2;
  c.n_embd = 8;
  return GPT(c, default_generator(), GPT::Init::kDefault);
}

TEST(Generate, GreedyDoesNotDependOnTheSeedAndEqualsTopOne) {
  const GPT gpt = small_gpt();
  const Tensor prompt = tensor({{1, 2}}, kInt64);
  Generator a(1), b(2), c(3);
  const auto first = generate(gpt, prompt, 20, with(0), a).to_vector<int64_t>();
  EXPECT_EQ(generate(gpt, prompt, 20, with(0), b).to_vector<int64_t>(), first);
  EXPECT_EQ(generate(gpt, prompt, 20, with(1, 1), c).to_vector<int64_t>(), first);
  EXPECT_EQ(a.random(), Generator(1).random());  // nothing was drawn
}

TEST(Generate, SeedDecides) {
  const GPT gpt = small_gpt();
  const Tensor prompt = tensor({{1, 2}}, kInt64);
  Generator a(1), again(1), b(2);
  const auto first = generate(gpt, prompt, 40, {}, a).to_vector<int64_t>();
  EXPECT_EQ(generate(gpt, prompt, 40, {}, again).to_vector<int64_t>(), first);
  EXPECT_NE(generate(gpt, prompt, 40, {}, b).to_vector<int64_t>(), first);
}

TEST(Generate, LongPromptsAreCroppedToTheirLastBlockAndKeptWhole) {
  const GPT gpt = small_gpt();
  const Tensor long_prompt = randint(0, 5, {1, 20});
  for (const int64_t T : {8, 9, 20}) {
    const Tensor prompt = narrow(long_prompt, 1, 20 - T, T);
    const Tensor y = generate(gpt, prompt, 12, with(0));
    EXPECT_EQ(narrow(y, 1, 0, T).to_vector<int64_t>(), prompt.to_vector<int64_t>());
    // Step by step, by hand.
    std::vector<int64_t> ids = prompt.to_vector<int64_t>();
    for (int i = 0; i < 12; ++i) {
      const std::vector<int64_t> context(ids.end() - std::min<std::ptrdiff_t>(8, std::ssize(ids)),
                                         ids.end());
      const auto n = static_cast<int64_t>(context.size());
      ids.push_back(
          static_cast<int64_t>(argmax(gpt.next_logits(from_vector(context, {1, n}))).item()));
    }
    EXPECT_EQ(y.to_vector<int64_t>(), ids) << T;
  }
}

TEST(Generate, BigramIdsStayInTheVocabulary) {
  manual_seed(4);
  const BigramLM model(5, 8);
  for (const int64_t id : generate(model, zeros({2, 1}, kInt64), 100).to_vector<int64_t>()) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 5);
  }
}

// Each row as if the texts before it had been drawn from the same stream before.
TEST(Generate, TextsTogetherAreThoseOfOneGeneratorOneAfterTheOther) {
  const GPT gpt = small_gpt();
  const Tensor prompt = tensor({{1, 2, 3}}, kInt64);
  for (const SamplingOptions& options : {with(1), with(0.7, 3), with(1, 0, 0.8), with(0)}) {
    Generator one(7);
    std::vector<Generator> streams = consecutive_streams(one, 4, 12, gpt.vocab_size(), options);
    const Tensor together = generate(gpt, expand(prompt, {4, -1}), 12, options, streams);
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(narrow(together, 0, i, 1).to_vector<int64_t>(),
                generate(gpt, prompt, 12, options, one).to_vector<int64_t>())
          << i;
    }
    EXPECT_EQ(streams.back().get_state(), one.get_state());
  }
}

TEST(Generate, WantsOneGeneratorOrOneARow) {
  manual_seed(4);
  const BigramLM model(5, 8);
  std::vector<Generator> two(2);
  EXPECT_EQ(error_of([&] {
              generate(model, zeros({3, 1}, kInt64), 1, {}, two);
            }),
            "generate: one generator or one a row is required, got 2 for 3 rows");
}

TEST(Generate, StopsWhenAskedTo) {
  manual_seed(4);
  const BigramLM model(5, 8);
  int calls = 0;
  const Tensor y = generate(model, zeros({1, 1}, kInt64), 100, {}, default_generator(),
                            [&](const std::vector<int64_t>&) { return ++calls < 3; });
  EXPECT_EQ(y.size(1), 4);
}

TEST(Generate, ZeroNewTokensAndWrongArguments) {
  manual_seed(4);
  const BigramLM model(5, 8);
  const Tensor ids = zeros({1, 2}, kInt64);
  EXPECT_EQ(generate(model, ids, 0).shape(), (Shape{1, 2}));
  EXPECT_EQ(error_of([&] { generate(model, ids, -1); }),
            "generate: max_new_tokens must not be negative, got -1");
  EXPECT_THAT(error_of([&] {
                generate(model, zeros({1, 0}, kInt64), 1);
              }),
              HasSubstr("ids must have shape [B, T] with T >= 1"));
}

TEST(Generate, ANaNModelIsNamed) {
  BigramLM model(5, 8);
  {
    const NoGradGuard no_grad;
    fill_(model.token_embedding_table.weight, NAN);
  }
  EXPECT_THAT(error_of([&] {
                generate(model, zeros({1, 1}, kInt64), 3);
              }),
              HasSubstr("non-finite logits"));
}

}  // namespace
}  // namespace chargrad
