// Every case passes, and none would pass with a gradient that is 1 % wrong in one element.
#include "tests/gradcheck/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "engine/ops.h"
#include "models/gpt.h"
#include "tests/gradcheck/report.h"

namespace chargrad::tests {

// How GoogleTest prints the parameter; the name is its own.
// NOLINTNEXTLINE(readability-identifier-naming)
static void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

namespace {

std::string test_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class GradcheckCase : public testing::TestWithParam<Case> {};

TEST_P(GradcheckCase, Passes) {
  const Outcome outcome = run_case(GetParam());
  EXPECT_TRUE(outcome.passed) << line(outcome, outcome.name.size());
}

// x, with one element, counted in row-major order, 1 % too large.
Tensor one_percent_off(const Tensor& x, size_t element) {
  std::vector<double> values = x.to_vector<double>();
  values[element] *= 1.01;
  return from_vector(values, x.shape(), x.dtype());
}

// The first, a middle and the last of the elements whose gradient is above a thousandth of the
// largest, or of the 1e-3 that counts as large at least. 1 % of less than that is no error to speak
// of, measured as gradcheck does.
std::vector<size_t> elements_that_count(const Tensor& gradient) {
  const std::vector<double> values = gradient.to_vector<double>();
  double largest = 1e-3;
  for (const double value : values) {
    largest = std::max(largest, std::abs(value));
  }
  std::vector<size_t> all;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) > 1e-3 * largest) {
      all.push_back(i);
    }
  }
  return all.size() <= 3 ? all : std::vector<size_t>{all.front(), all[all.size() / 2], all.back()};
}

// Gradients of a sum of the results under weights that no symmetry of f makes 0.
Grads gradients_of(const Subject& subject) {
  const Tensor y = subject.f(subject.inputs);
  std::vector<double> weights(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = 1 + 0.37 * static_cast<double>(i % 7) - 0.11 * static_cast<double>(i % 5);
  }
  return grad({y}, subject.inputs, {from_vector(weights, y.shape(), y.dtype())},
              /*retain_graph=*/false, /*allow_unused=*/true);
}

// The case, with its input `i` alone checked and one element of that gradient wrong.
Case mutated(const Case& c, size_t i, size_t element) {
  return {c.name, [&c, i, element] {
            Subject subject = c.make();
            for (Tensor& input : subject.inputs) {
              input.set_requires_grad(input.impl() == subject.inputs[i].impl());
            }
            subject.inputs[i].register_hook(
                [element](const Tensor& dx) { return one_percent_off(dx, element); });
            return subject;
          }};
}

// Whether the result stays the same when every element of every input moves, each by another
// amount: then there is nothing to get wrong by 1 %.
bool is_flat(const Subject& subject) {
  const NoGradGuard no_grad;
  const std::vector<double> before = subject.f(subject.inputs).to_vector<double>();
  double moved = 0;
  for (const Tensor& input : subject.inputs) {
    std::vector<double> steps(static_cast<size_t>(input.numel()));
    for (double& step : steps) {
      step = 1e-3 * ++moved;
    }
    add_(input, from_vector(steps, input.shape()));
  }
  const std::vector<double> after = subject.f(subject.inputs).to_vector<double>();
  double change = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    change = std::max(change, std::abs(after[i] - before[i]));
  }
  return change < 1e-12;
}

TEST_P(GradcheckCase, FailsWithOneElementOnePercentOff) {
  const Subject subject = GetParam().make();
  const Grads gradients = gradients_of(subject);
  size_t mutations = 0;
  for (size_t i = 0; i < subject.inputs.size(); ++i) {
    if (!gradients[i].defined()) {
      continue;
    }
    for (const size_t element : elements_that_count(gradients[i])) {
      const Outcome outcome = run_case(mutated(GetParam(), i, element));
      EXPECT_FALSE(outcome.passed) << "input " << i << ", element " << element;
      EXPECT_LT(outcome.max_rel_error, 0.02) << outcome.detail;
      ++mutations;
    }
  }
  EXPECT_EQ(mutations == 0, is_flat(subject));
}

INSTANTIATE_TEST_SUITE_P(Gradcheck, GradcheckCase, testing::ValuesIn(all_cases()), test_name);

// x, passed on by an op whose gradient is wrong.
Tensor wrong_op(const Tensor& x, size_t element) {
  return record(
      "wrong_op", clone(x.detach()), {x}, save(),
      [element](const Tensor& dy, const Saved&) { return Grads{one_percent_off(dy, element)}; });
}

constexpr int64_t kPlaces = 4;

// The loss of a two-layer GPT, with the wrong op after the embeddings, the first or the second
// block, or the last norm; `place` kPlaces is nowhere.
Tensor loss_with_wrong_op(const GPT& gpt, const Tensor& ids, int64_t place, size_t element) {
  const Transformer& t = gpt.transformer;
  const auto pass = [&](int64_t here, const Tensor& x) {
    return place == here ? wrong_op(x, element) : x;
  };
  Tensor x = pass(0, t.wte(ids) + t.wpe(arange(static_cast<double>(ids.size(1)))));
  x = pass(1, t.h[0].forward(x));
  x = pass(2, t.h[1].forward(x));
  x = pass(3, t.ln_f(x));
  return cross_entropy(gpt.lm_head(x), ids);
}

TEST(GradcheckGPT, CatchesOnePercentInOneElementBetweenLayers) {
  GPTConfig config;
  config.block_size = 4;
  config.vocab_size = 6;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 8;
  Generator generator(1337);
  GPT gpt(config, generator, GPT::Init::kDefault);
  gpt.to(kFloat64);
  const Tensor ids = randint(0, 6, {2, 4}, generator);
  // What lies below every place: the positions' table.
  const std::vector<Tensor> inputs = {gpt.transformer.wpe.weight};
  const size_t elements = 2 * size_t{4} * 8;
  for (int64_t place = 0; place <= kPlaces; ++place) {
    for (size_t element = 0; element < elements; element += place == kPlaces ? elements : 9) {
      const GradcheckResult result = gradcheck(
          [&](const auto&) { return loss_with_wrong_op(gpt, ids, place, element); }, inputs);
      EXPECT_EQ(result.max_rel_error > kMaxRelError, place < kPlaces)
          << "place " << place << ", element " << element << ": " << result.max_rel_error;
    }
  }
}

}  // namespace
}  // namespace chargrad::tests
