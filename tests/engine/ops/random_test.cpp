// The ops draw what PyTorch draws: cases of tests/golden/make_rng.py. The numbers of each
// distribution are the kernels' concern; here it is strides, dtypes, arguments and generators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "tests/golden/golden.h"

namespace chargrad {
namespace {

using Replay = std::function<Tensor(Generator&)>;
using testing::Each;
using testing::ElementsAre;

std::vector<double> values(const Tensor& x) {
  return x.to_vector<double>();
}

// (3, 4, 2) over the memory of a (2, 3, 4).
Tensor permuted() {
  return permute(zeros({2, 3, 4}), {1, 2, 0});
}

Tensor weights(DType dtype = kFloat32) {
  return tensor({{0.5, 0.0, 2.0, 0.25, 1.0, 0.125}, {3.0, 1.0, 0.0, 0.0, 1.0, 0.5}}, dtype);
}

Tensor empty_of(int64_t n, DType dtype) {
  return empty({n}, dtype);
}

void check_cases(const char* list, const std::map<std::string, Replay>& replays) {
  const auto cases = tests::golden("rng.json").at(list);
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& entry : cases) {
    by_name[entry.at("name")] = entry;
  }
  for (const auto& [name, replay] : replays) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(by_name.count(name));
    Generator generator(tests::seed_of(by_name.at(name)));
    EXPECT_EQ(values(replay(generator)), tests::values_of(by_name.at(name)));
  }
}

TEST(Random, FactoriesDrawPyTorchsNumbers) {
  check_cases(
      "cases",
      {
          {"rand(8)",
           [](auto& g) {
             return rand({2, 4}, kFloat32, g);
           }},
          {"rand(8) float64", [](auto& g) { return rand({8}, kFloat64, g); }},
          {"rand(4), seed -1", [](auto& g) { return rand({4}, kFloat32, g); }},
          {"uniform(9, -0.3, 0.7)",
           [](auto& g) {
             return uniform_(empty({3, 3}), -0.3, 0.7, g);
           }},
          {"randn(5)", [](auto& g) { return randn({5}, kFloat32, g); }},
          {"randn(37)", [](auto& g) { return randn({37}, kFloat32, g); }},
          {"randn(20) float64",
           [](auto& g) {
             return randn({4, 5}, kFloat64, g);
           }},
          {"normal(20, 0.5, 0.02)", [](auto& g) { return normal_(empty({20}), 0.5, 0.02, g); }},
          {"strided normal(17, 0.5, 0.02)",
           [](auto& g) { return normal_(slice(zeros({34}), 0, 0, 34, 2), 0.5, 0.02, g); }},
          {"randint(65, 12)",
           [](auto& g) {
             return randint(0, 65, {3, 4}, g);
           }},
          {"randint(-5, 5, 12)", [](auto& g) { return randint(-5, 5, {12}, g); }},
          {"randint(-5, 2**40, 4)", [](auto& g) { return randint(-5, int64_t{1} << 40, {4}, g); }},
          {"randperm(20)", [](auto& g) { return randperm(20, g); }},
          {"bernoulli(24, 0.9)", [](auto& g) { return bernoulli_(empty({24}), 0.9, g); }},
          {"bernoulli(0.9 x 24)",
           [](auto& g) {
             return bernoulli(full({4, 6}, 0.9), g);
           }},
          {"bernoulli(0.9 x 24) float64",
           [](auto& g) { return bernoulli(full({24}, 0.9, kFloat64), g); }},
          {"exponential(8, 1)", [](auto& g) { return exponential_(empty({8}), 1, g); }},
          {"exponential(5, 2.7) float64",
           [](auto& g) { return exponential_(empty({5}, kFloat64), 2.7, g); }},
          {"multinomial(2 x 6, 4)", [](auto& g) { return multinomial(weights(), 4, false, g); }},
          {"multinomial(2 x 6, 12, replacement)",
           [](auto& g) { return multinomial(weights(), 12, true, g); }},
          {"multinomial(2 x 6, 3) float64",
           [](auto& g) { return multinomial(weights(kFloat64), 3, false, g); }},
      });
}

// Tensors are filled in the order of their memory.
TEST(Random, StridesAndDtypesAsPyTorch) {
  const std::map<std::string, Replay> replays = {
      {"permuted(3, 4, 2).uniform_()", [](auto& g) { return uniform_(permuted(), 0, 1, g); }},
      {"permuted(3, 4, 2).normal_()", [](auto& g) { return normal_(permuted(), 0, 1, g); }},
      {"permuted(3, 4, 2).exponential_()", [](auto& g) { return exponential_(permuted(), 1, g); }},
      {"permuted(3, 4, 2).bernoulli_(0.4)", [](auto& g) { return bernoulli_(permuted(), 0.4, g); }},
      {"permuted(3, 4, 2)[::2, 1:].normal_(0.5, 0.02)",
       [](auto& g) {
         return normal_(slice(slice(permuted(), 0, 0, 3, 2), 1, 1, 4), 0.5, 0.02, g);
       }},
      {"bernoulli(transposed)",
       [](auto& g) { return bernoulli(transpose(clamp(weights() * 0.25, 0, 1), 0, 1), g); }},
      {"rand(20) bfloat16", [](auto& g) { return rand({20}, kBFloat16, g); }},
      {"bfloat16 uniform_(0.99, 1)",
       [](auto& g) { return uniform_(empty_of(20, kBFloat16), 0.99, 1, g); }},
      {"randn(5) bfloat16", [](auto& g) { return randn({5}, kBFloat16, g); }},
      {"randn(21), rand(1) bfloat16",
       [](auto& g) {
         const Tensor first = randn({21}, kBFloat16, g);
         return cat({first, rand({1}, kBFloat16, g)});
       }},
      {"exponential_(2.7) bfloat16",
       [](auto& g) { return exponential_(empty_of(6, kBFloat16), 2.7, g); }},
      {"bernoulli_(0.4) int64", [](auto& g) { return bernoulli_(empty_of(12, kInt64), 0.4, g); }},
      {"bernoulli_(0.4) bool", [](auto& g) { return bernoulli_(empty_of(12, kBool), 0.4, g); }},
      {"bernoulli(bfloat16)", [](auto& g) { return bernoulli(full({12}, 0.4, kBFloat16), g); }},
      {"multinomial(bfloat16, 3)",
       [](auto& g) { return multinomial(weights(kBFloat16), 3, false, g); }},
  };
  EXPECT_EQ(tests::golden("rng.json").at("ops").size(), replays.size());
  check_cases("ops", replays);
}

// nn.Linear(4, 3)'s start: the weight, then the bias, uniform within 1 / sqrt(4).
TEST(Random, DefaultGeneratorGoesOn) {
  manual_seed(1337);
  const Tensor weight = empty({3, 4}), bias = empty({3});
  uniform_(weight, -0.5, 0.5);
  uniform_(bias, -0.5, 0.5);
  std::vector<double> drawn = values(weight);
  for (const double value : values(bias)) {
    drawn.push_back(value);
  }
  const auto cases = tests::golden("rng.json").at("cases");
  for (const auto& entry : cases) {
    if (entry.at("name") == "Linear(4, 3)") {
      EXPECT_EQ(drawn, tests::values_of(entry));
    }
  }
  // Each op goes on where the one before stopped.
  manual_seed(1337);
  Generator other(1337);
  EXPECT_EQ(values(rand({3})), values(rand({3}, kFloat32, other)));
  EXPECT_EQ(values(randn({3})), values(randn({3}, kFloat32, other)));
  EXPECT_EQ(values(randint(0, 9, {3})), values(randint(0, 9, {3}, other)));
  EXPECT_EQ(values(randperm(5)), values(randperm(5, other)));
  EXPECT_EQ(values(bernoulli(full({4}, 0.5))), values(bernoulli(full({4}, 0.5), other)));
  EXPECT_EQ(values(multinomial(weights(), 2)), values(multinomial(weights(), 2, false, other)));
  EXPECT_EQ(values(bernoulli_(empty({4}), 0.5)), values(bernoulli_(empty({4}), 0.5, other)));
  EXPECT_EQ(values(exponential_(empty({4}))), values(exponential_(empty({4}), 1, other)));
  EXPECT_EQ(values(normal_(empty({4}))), values(normal_(empty({4}), 0, 1, other)));
}

TEST(Random, ResultsHaveShapeAndDtype) {
  EXPECT_EQ(rand({2, 0, 3}).shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(randn({}).shape(), Shape{});
  EXPECT_EQ(rand({2}, kBFloat16).dtype(), kBFloat16);
  EXPECT_EQ(randint(0, 2, {3}).dtype(), kInt64);
  EXPECT_EQ(randperm(0).shape(), Shape{0});
  EXPECT_EQ(bernoulli(full({2, 3}, 1, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(multinomial(weights(), 1).shape(), (Shape{2, 1}));
  EXPECT_EQ(multinomial(select(weights(), 0, 0), 2).shape(), Shape{2});
  EXPECT_EQ(multinomial(weights(), 1).dtype(), kInt64);
}

TEST(Random, InPlaceOpsRaiseTheVersionAndReturnTheTensor) {
  const Tensor x = zeros({3});
  const uint64_t before = x.version();
  const Tensor y = uniform_(x, 2, 3);
  EXPECT_GT(x.version(), before);
  EXPECT_EQ(y.raw_data(), x.raw_data());
  EXPECT_THAT(values(x), Each(testing::Ge(2.0)));
}

TEST(Random, NoGradientPassesABernoulli) {
  Tensor p = full({3}, 0.5);
  p.set_requires_grad();
  EXPECT_FALSE(bernoulli(p).requires_grad());
}

template <class F>
void expect_error(F f, const std::string& message) {
  try {
    f();
    ADD_FAILURE() << "no error: " << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), message);
  }
}

TEST(Random, BadArgumentsAreRefused) {
  const Tensor x = zeros({2}), ids = zeros({2}, kInt64);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([&] { rand({2}, kInt64); }, "rand: the dtype must be floating, got int64");
  expect_error([&] { randn({2}, kBool); }, "randn: the dtype must be floating, got bool");
  expect_error([&] { rand({-1}); }, "shape: sizes must not be negative, got [-1]");
  expect_error([&] { randint(3, 3, {2}); },
               "randint: low must be below high, got low 3 and high 3");
  expect_error([&] { randperm(-1); }, "randperm: n must not be negative, got -1");
  expect_error([&] { uniform_(x, 1, 0); },
               "uniform_: from <= to and a finite range are required, got from 1 and to 0");
  expect_error([&] { uniform_(x, -3e38, 3e38); },
               "uniform_: from <= to and a finite range are required, got from -3e+38 and to "
               "3e+38");
  expect_error([&] { uniform_(x, nan, 1); },
               "uniform_: from <= to and a finite range are required, got from nan and to 1");
  expect_error([&] { uniform_(ids); }, "uniform_: input must be floating, got int64");
  expect_error([&] { normal_(x, 0, -1); }, "normal_: std must not be negative, got -1");
  expect_error([&] { normal_(ids); }, "normal_: input must be floating, got int64");
  expect_error([&] { bernoulli_(x, 1.5); }, "bernoulli_: p must be in [0, 1], got 1.5");
  expect_error([&] { bernoulli_(x, nan); }, "bernoulli_: p must be in [0, 1], got nan");
  expect_error([&] { exponential_(x, 0); }, "exponential_: lambda must be positive, got 0");
  expect_error([&] { exponential_(ids); }, "exponential_: input must be floating, got int64");
  expect_error(
      [&] {
        bernoulli(tensor({{0, 0.5}, {1, -0.5}}));
      },
      "bernoulli: p must be in [0, 1], got -0.5 at element 3 of shape [2, 2]");
  expect_error([&] { bernoulli(ids); }, "bernoulli: p must be floating, got int64");
}

TEST(Random, BadWeightsAreRefused) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect_error(
      [&] {
        multinomial(zeros({2, 2, 2}), 1);
      },
      "multinomial: p must have 1 or 2 dims, got shape [2, 2, 2]");
  expect_error([&] { multinomial(scalar(1), 1); },
               "multinomial: p must have 1 or 2 dims, got shape []");
  expect_error([&] { multinomial(ones({2}), 0); },
               "multinomial: num_samples must be positive, got 0");
  expect_error([&] { multinomial(zeros({2}, kInt64), 1); },
               "multinomial: p must be floating, got int64");
  expect_error(
      [&] {
        multinomial(tensor({{1, 2}, {3, -4}}), 1);
      },
      "multinomial: weights must be finite and not negative, got -4 at column 1 of row 1");
  expect_error(
      [&] {
        multinomial(tensor({1, infinity}), 1, true);
      },
      "multinomial: weights must be finite and not negative, got inf at column 1 of row 0");
  expect_error(
      [&] {
        multinomial(tensor({{1, 2}, {0, 0}}), 1);
      },
      "multinomial: the weights of row 1 are all zero");
  expect_error(
      [&] {
        multinomial(tensor({0, 2, 1}), 3);
      },
      "multinomial: 3 samples without replacement need as many positive weights, row 0 "
      "has 2");
  Generator generator(3);
  EXPECT_THAT(values(multinomial(tensor({0, 2, 0}), 3, true, generator)), ElementsAre(1, 1, 1));
}

TEST(Random, WhatCannotChangeIsRefused) {
  Tensor x = zeros({2, 1});
  expect_error(
      [&] {
        normal_(expand(x, {2, 3}));
      },
      "normal_: the elements of an expanded tensor share memory, got shape [2, 3] with "
      "strides [1, 0]");
  x.set_requires_grad();
  expect_error([&] { uniform_(x); },
               "uniform_: a tensor that requires grad cannot be changed in place while ops are "
               "recorded; use a NoGradGuard");
  const NoGradGuard no_grad;
  uniform_(x, 1, 2);
  EXPECT_THAT(values(x), Each(testing::Ge(1.0)));
}

}  // namespace
}  // namespace chargrad
