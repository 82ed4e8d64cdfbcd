#include "engine/gradcheck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine/ops.h"

namespace chargrad {
namespace {

using testing::HasSubstr;

Tensor input(const std::vector<double>& values, const Shape& shape) {
  return from_vector(values, shape).set_requires_grad();
}

// x, with element `at` of its gradient times `factor`.
Tensor skewed(const Tensor& x, size_t at, double factor) {
  return record("skewed", clone(x.detach()), {x}, save(), [at, factor](const Tensor& dy, auto&) {
    std::vector<double> dx = dy.to_vector<double>();
    dx[at] *= factor;
    return Grads{from_vector(dx, dy.shape())};
  });
}

// An op that forgot its gradient.
Tensor without_gradient(const Tensor& x) {
  return tanh(x.detach());
}

std::string failure(const GradcheckFunction& f, const std::vector<Tensor>& inputs,
                    const GradcheckOptions& options = {}) {
  try {
    gradcheck(f, inputs, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::vector<uint64_t> bits_of(const Tensor& x) {
  std::vector<uint64_t> bits;
  for (const double value : x.to_vector<double>()) {
    bits.push_back(std::bit_cast<uint64_t>(value));
  }
  return bits;
}

TEST(Gradcheck, PassesRightGradients) {
  const Tensor a = input({0.3, -1.2, 0.7, 2.1, -0.4, 0.9}, {2, 3});
  const Tensor b = input({1.1, 0.2, -0.8}, {3});
  const GradcheckResult result =
      gradcheck([](const auto& in) { return tanh(in[0] * in[1]) + exp(in[1]); }, {a, b});
  EXPECT_TRUE(result.passed) << result.message();
  // Rounding: an ulp or two of a value below 4, over 2 eps, that is 4 * 2.2e-16 / 2e-6 = 4e-10 for
  // each of the few results that an element takes part in, relative to gradients about 1.
  EXPECT_LT(result.max_rel_error, 1e-8);
  EXPECT_LT(result.max_abs_error, 1e-8);
  EXPECT_GT(result.max_abs_error, 0);
}

TEST(Gradcheck, CatchesOnePercentInOneElement) {
  const Tensor a = input({0.3, -1.2, 0.7, 2.1, -0.4, 0.9}, {2, 3});
  const Tensor b = input({1.1, 0.2, -0.8}, {3});
  for (size_t at = 0; at < 6; ++at) {
    const GradcheckResult result =
        gradcheck([at](const auto& in) { return skewed(in[0], at, 1.01) * in[1]; }, {a, b});
    EXPECT_FALSE(result.passed) << "element " << at;
    EXPECT_EQ(result.worst.input, 0u);
    const auto column = static_cast<int64_t>(at % 3), row = static_cast<int64_t>(at / 3);
    EXPECT_EQ(result.worst.index, (Shape{row, column}));
    EXPECT_NEAR(result.worst.analytic / result.worst.numeric, 1.01, 1e-6);
    EXPECT_NEAR(result.max_abs_error, 0.01 * std::abs(result.worst.numeric), 1e-7);
    // The weights are between 0.5 and 1.5, b between 0.2 and 1.1: the element's gradient is at
    // least 0.1 and the largest at most 1.65.
    EXPECT_GT(result.max_rel_error, 0.01 * 0.1 / 1.65);
  }
}

TEST(Gradcheck, NamesTheWorstElement) {
  const Tensor a = input({1, 2, 3}, {3});
  const Tensor b = input({4, 5, 6, 7}, {2, 2});
  // The second fault is the larger one.
  const GradcheckResult result = gradcheck(
      [](const auto& in) { return sum(skewed(in[0], 1, 1.01)) + sum(skewed(in[1], 2, 2)); },
      {a, b});
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.worst.input, 1u);
  EXPECT_EQ(result.worst.index, (Shape{1, 0}));

  GradcheckResult half;
  half.worst = {1, {0, 2}, 0.5, 0.51};
  EXPECT_EQ(half.message(), "input 1 at [0, 2]: analytic 0.5, numeric 0.51");
  half.worst = {0, {}, -2, 1e-20};
  EXPECT_EQ(half.message(), "input 0 at []: analytic -2, numeric 1e-20");
}

TEST(Gradcheck, CatchesAnOpThatCutsTheGraph) {
  const Tensor x = input({0.5, -0.5}, {2});
  const GradcheckResult cut =
      gradcheck([](const auto& in) { return without_gradient(in[0]); }, {x});
  EXPECT_FALSE(cut.passed);
  EXPECT_EQ(cut.worst.analytic, 0);
  EXPECT_GT(cut.max_rel_error, 0.5);
  // A result that truly does not depend on an input has the gradient 0.
  const Tensor unused = input({1}, {1});
  EXPECT_TRUE(gradcheck([](const auto& in) { return in[0] * 2; }, {x, unused}).passed);
}

TEST(Gradcheck, ToleratesWhatTheOptionsSay) {
  const Tensor x = input({2, 3}, {2});
  const GradcheckFunction f = [](const auto& in) { return sum(skewed(in[0], 0, 1.01)); };
  EXPECT_FALSE(gradcheck(f, {x}).passed);
  GradcheckOptions loose;
  loose.rtol = 0.02;
  EXPECT_TRUE(gradcheck(f, {x}, loose).passed);
  loose = {};
  loose.atol = 0.05;
  EXPECT_TRUE(gradcheck(f, {x}, loose).passed);
  // The third derivative of x^3 is 6: an eps of 0.1 is off by 0.1^2 * 6 / 6 = 0.01, times a weight.
  GradcheckOptions coarse;
  coarse.eps = 0.1;
  const double error =
      gradcheck([](const auto& in) { return pow(in[0], 3); }, {x}, coarse).max_abs_error;
  EXPECT_GE(error, 0.005);
  EXPECT_LE(error, 0.015 * 1.001);
}

TEST(Gradcheck, NonFiniteGradientsFail) {
  const Tensor x = input({1, 2}, {2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const GradcheckResult analytic =
      gradcheck([nan](const auto& in) { return skewed(in[0], 1, nan); }, {x});
  EXPECT_FALSE(analytic.passed);
  EXPECT_EQ(analytic.worst.index, (Shape{1}));
  EXPECT_EQ(analytic.max_abs_error, std::numeric_limits<double>::infinity());
  EXPECT_EQ(analytic.max_rel_error, std::numeric_limits<double>::infinity());
  // log of a negative number: numeric NaN.
  EXPECT_FALSE(gradcheck([](const auto& in) { return log(in[0]); }, {input({-1}, {1})}).passed);
}

TEST(Gradcheck, TakesStridedInputsAndHandlesOfItsOwn) {
  const Tensor base = from_vector(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  Tensor x = slice(base, 0, 0, 4, 2).transpose(0, 1).detach().set_requires_grad();
  EXPECT_FALSE(x.is_contiguous());
  const GradcheckFunction f = [x](const auto&) { return x * x * x; };
  EXPECT_TRUE(gradcheck(f, {x}).passed);
  const GradcheckResult wrong =
      gradcheck([](const auto& in) { return skewed(in[0], 1, 1.01); }, {x});
  EXPECT_EQ(wrong.worst.index, (Shape{0, 1}));
  EXPECT_EQ(base.to_vector<double>(), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Gradcheck, TakesInputsThatNeedNoGradient) {
  const Tensor x = input({1, 2}, {2});
  const Tensor ids = tensor({1, 0}, kInt64);
  const Tensor scale = tensor({2, 3}, kFloat32);
  const GradcheckResult result = gradcheck(
      [](const auto& in) {
        EXPECT_FALSE(in[3].defined());
        return index_select(in[0], 0, in[1]) * in[2];
      },
      {x, ids, scale, Tensor()});
  EXPECT_TRUE(result.passed) << result.message();
}

TEST(Gradcheck, ChecksTensorsThatAnOpMade) {
  const Tensor leaf = input({1, 2}, {2});
  const Tensor x = leaf * 3;
  EXPECT_TRUE(gradcheck([](const auto& in) { return exp(in[0]); }, {x}).passed);
  // The graph above x is still there.
  sum(x).backward();
  EXPECT_EQ(leaf.grad().to_vector<double>(), (std::vector<double>{3, 3}));
}

TEST(Gradcheck, LeavesEverythingAsItWas) {
  // -0, a denormal, and a number that 1e-6 cannot be added to and subtracted from exactly.
  const Tensor x = input({-0.0, 5e-324, 0.1, 12345.678}, {4});
  x.set_grad(tensor({1, 2, 3, 4}, kFloat64));
  const std::vector<uint64_t> before = bits_of(x);
  const uint64_t version = x.version();
  const std::vector<uint8_t> generator = default_generator().get_state();

  gradcheck([](const auto& in) { return in[0] * in[0]; }, {x});
  EXPECT_EQ(bits_of(x), before);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(x.version(), version);
  EXPECT_EQ(default_generator().get_state(), generator);

  for (int calls = 1; calls < 8; ++calls) {
    int left = calls;
    const GradcheckFunction throws = [&left](const auto& in) {
      CHARGRAD_CHECK(left-- > 0, "f: no calls left");
      return in[0] * 2;
    };
    EXPECT_EQ(failure(throws, {x}), "f: no calls left");
    EXPECT_EQ(bits_of(x), before);
  }
}

TEST(Gradcheck, RefusesWhatCannotBeChecked) {
  const GradcheckFunction twice = [](const auto& in) { return in[0] * 2; };
  const Tensor x = input({1, 2}, {2});
  EXPECT_EQ(failure(twice, {tensor({1}).set_requires_grad()}),
            "gradcheck: an input that requires grad must be float64, got input 0 of dtype float32");
  EXPECT_EQ(
      failure(twice, {x, tensor({1}, kBFloat16).set_requires_grad()}),
      "gradcheck: an input that requires grad must be float64, got input 1 of dtype bfloat16");
  const std::string none = "gradcheck: at least one input must require grad and have an element, ";
  EXPECT_EQ(failure(twice, {}), none + "got 0 without");
  EXPECT_EQ(failure(twice, {tensor({1}, kFloat64)}), none + "got 1 without");
  EXPECT_EQ(failure(twice, {input({}, {0, 3}), Tensor()}), none + "got 2 without");
  GradcheckOptions options;
  options.eps = 0;
  EXPECT_EQ(failure(twice, {x}, options), "gradcheck: eps must be positive, got 0");
  const NoGradGuard no_grad;
  EXPECT_EQ(failure(twice, {x}), "gradcheck: gradients are switched off by a NoGradGuard");
}

TEST(Gradcheck, RefusesOverlappingInputs) {
  const GradcheckFunction twice = [](const auto& in) { return in[0] * 2; };
  const Tensor row = tensor({1, 2, 3}, kFloat64);
  Tensor expanded = expand(row, {2, 3}).detach();
  expanded.set_requires_grad();
  EXPECT_EQ(failure(twice, {expanded}),
            "gradcheck: the elements of an input must not share memory, got input 0 of shape [2, 3]"
            " with strides [0, 1]");

  Tensor a = narrow(row, 0, 0, 2).detach().set_requires_grad();
  Tensor b = narrow(row, 0, 1, 2).detach().set_requires_grad();
  EXPECT_EQ(failure(twice, {a, b}),
            "gradcheck: inputs must not share memory, got inputs 0 and 1 of shapes [2] and [2]");
  EXPECT_EQ(failure(twice, {b, a.detach()}),
            "gradcheck: inputs must not share memory, got inputs 0 and 1 of shapes [2] and [2]");
  EXPECT_EQ(failure(twice, {a, a}),
            "gradcheck: inputs must not share memory, got inputs 0 and 1 of shapes [2] and [2]");
  // Interleaved in one storage, but apart; and an expanded input that needs no gradient.
  const Tensor even = slice(zeros({6}, kFloat64), 0, 0, 6, 2).detach().set_requires_grad();
  const Tensor odd =
      slice(Tensor(even.storage(), {6}, {1}, 0, kFloat64), 0, 1, 6, 2).detach().set_requires_grad();
  const Tensor constant = expand(tensor({2}, kFloat64), {3});
  EXPECT_TRUE(gradcheck([](const auto& in) { return in[0] * in[1] * in[2]; }, {even, odd, constant})
                  .passed);
}

TEST(Gradcheck, RefusesFunctionsThatDiffer) {
  const Tensor x = input({1, 2}, {2});
  int calls = 0;
  EXPECT_THAT(failure([&](const auto& in) { return in[0] * (1 + 1e-15 * calls++); }, {x}),
              HasSubstr("gradcheck: f must give the same bits in each call, recorded or not, got "
                        "1 and then 1.00"));
  calls = 1;
  EXPECT_EQ(failure(
                [&](const auto& in) {
                  return expand(in[0], {++calls, 2});
                },
                {x}),
            "gradcheck: f must give the same result in each call, recorded or not, got shape "
            "[2, 2] and then [3, 2]");
  calls = 0;
  EXPECT_EQ(
      failure([&](const auto& in) { return ++calls < 3 ? in[0] : narrow(in[0], 0, 0, 1); }, {x}),
      "gradcheck: f must keep the number of its results, got 1 elements after 2");
}

TEST(Gradcheck, RefusesResultsWithoutAGradient) {
  const Tensor x = input({1, 2}, {2});
  EXPECT_EQ(failure([](const auto&) { return Tensor(); }, {x}),
            "gradcheck: f must return a tensor, got an undefined one");
  EXPECT_EQ(failure([](const auto& in) { return argmax(in[0]); }, {x}),
            "gradcheck: f must return a floating tensor, got dtype int64");
  EXPECT_EQ(failure([](const auto& in) { return gt(in[0], 0); }, {x}),
            "gradcheck: f must return a floating tensor, got dtype bool");
  EXPECT_EQ(failure([](const auto& in) { return narrow(in[0], 0, 0, 0); }, {x}),
            "gradcheck: f must return at least one element, got shape [0]");
}

}  // namespace
}  // namespace chargrad
