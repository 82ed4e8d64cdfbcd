// The graph: order, sharing, freeing, depth, hooks, versions, errors.
#include "engine/autograd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor leaf(double value) {
  return scalar(value, kFloat64).set_requires_grad();
}

// The text of the exception that f throws.
// y = x with a backward that f makes.
Tensor custom(const char* name, const Tensor& x, BackwardFn f) {
  return record(name, clone(x.detach()), {x}, save(), std::move(f));
}

TEST(Autograd, TensorUsedTwiceGetsBothGradients) {
  const Tensor a = leaf(1);
  const Tensor b = a + a;
  b.retain_grad();
  const Tensor c = b + b;
  c.backward();
  EXPECT_EQ(a.grad().item(), 4);
  EXPECT_EQ(b.grad().item(), 2);
}

TEST(Autograd, AllPathsOfAReusedInnerNodeCount) {
  const Tensor x = leaf(1), a = leaf(1);
  const Tensor t = x * a;
  const Tensor f = x * t + (x * x) * a + x * t;
  f.backward();
  EXPECT_EQ(x.grad().item(), 6);
  EXPECT_EQ(a.grad().item(), 3);
}

// Sums may be made in place only where nobody else holds the memory.
TEST(Autograd, AddingGradientsUpLeavesThoseThatOthersHoldAlone) {
  const Tensor x = ones({2}, kFloat64).set_requires_grad();
  const Tensor y = x * 3.0;
  const Tensor first = tensor({1, 2}, kFloat64), second = tensor({10, 20}, kFloat64);
  const Tensor third = tensor({100}, kFloat64);
  const Grads grads = grad({y, y, narrow(y, 0, 1, 1)}, {y, x}, {first, second, third});
  EXPECT_THAT(grads[0].to_vector<double>(), ElementsAre(11, 122));
  EXPECT_THAT(grads[1].to_vector<double>(), ElementsAre(33, 366));
  EXPECT_THAT(first.to_vector<double>(), ElementsAre(1, 2));
  EXPECT_THAT(second.to_vector<double>(), ElementsAre(10, 20));
  EXPECT_THAT(third.to_vector<double>(), ElementsAre(100));
}

TEST(Autograd, SecondBackwardThroughAFreedGraphIsAnError) {
  const Tensor a = leaf(3), b = leaf(2);
  const Tensor c = a + b;
  const Tensor e = c * leaf(1);
  e.backward();
  EXPECT_THAT(error_text<std::invalid_argument>([&] { e.backward(); }),
              HasSubstr("backward: the graph at op 'mul' was freed by an earlier backward"));
  EXPECT_THAT(error_text<std::invalid_argument>([&] { (c * 2).backward(); }),
              HasSubstr("the graph at op 'add' was freed"));
  EXPECT_EQ(a.grad().item(), 1);
}

TEST(Autograd, RetainedGraphRunsAgainAndLeavesAddUp) {
  const Tensor a = leaf(3), b = leaf(2);
  const Tensor e = (a + b) * leaf(1);
  e.backward({}, /*retain_graph=*/true);
  e.backward();
  EXPECT_EQ(a.grad().item(), 2);
}

TEST(Autograd, BackwardNeedsAGradientForMoreThanOneElement) {
  const Tensor x = leaf(3);
  const Tensor y = tensor({1, 2}, kFloat64) * x;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { y.backward(); }),
            "backward: a gradient must be given unless the tensor has one element, got shape [2]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { y.backward(ones({3}, kFloat64)); }),
            "backward: the gradient must have the tensor's shape [2], got [3]");
  y.backward(tensor({1, 10}, kFloat64));
  EXPECT_EQ(x.grad().item(), 21);
}

TEST(Autograd, BackwardOfAConstantIsAnError) {
  EXPECT_THAT(error_text<std::invalid_argument>([] { (ones({}) + ones({})).backward(); }),
              HasSubstr("backward: the tensor does not require grad"));
  EXPECT_THAT(error_text<std::invalid_argument>([] { Tensor().backward(); }),
              HasSubstr("does not require grad"));
}

TEST(Autograd, BackwardOfALeafSetsItsOwnGradient) {
  const Tensor x = leaf(3);
  x.backward();
  EXPECT_EQ(x.grad().item(), 1);
}

// Builds y = x + 1 + 1 ... of `depth` ops, runs backward if asked to, and drops it.
struct Chain {
  int64_t depth;
  bool run_backward;
  double gradient = 0;
  int64_t in_use_after = 0;
};

void* run_chain(void* argument) {
  auto& chain = *static_cast<Chain*>(argument);
  const Tensor x = leaf(0);
  {
    Tensor y = x;
    for (int64_t i = 0; i < chain.depth; ++i) {
      y = y + 1;
    }
    if (chain.run_backward) {
      y.backward();
      chain.gradient = x.grad().item();
    }
  }
  chain.in_use_after = memory_stats().in_use;
  return nullptr;
}

// As under `ulimit -s 256`.
void run_on_small_stack(Chain& chain) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run_chain, &chain), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(Autograd, AMillionOpsRunBackwardOnASmallStack) {
  Chain chain{1'000'000, /*run_backward=*/true};
  run_on_small_stack(chain);
  EXPECT_EQ(chain.gradient, 1);
}

TEST(Autograd, AMillionOpsAreDroppedOnASmallStack) {
  const int64_t before = memory_stats().in_use;
  Chain chain{1'000'000, /*run_backward=*/false};
  run_on_small_stack(chain);
  EXPECT_LE(chain.in_use_after, before + 4096);
}

TEST(Autograd, BackwardFreesWhatWasSaved) {
  const Tensor x = ones({1000}, kFloat64).set_requires_grad();
  const Tensor y = sum(exp(exp(exp(x))));
  const int64_t before = memory_stats().in_use;
  y.backward();
  // Three saved results of 8,000 bytes go, one gradient comes.
  EXPECT_LE(memory_stats().in_use, before - int64_t{16000});
}

TEST(Autograd, DetachLeavesTheGraphAndSharesData) {
  const Tensor x = leaf(2);
  const Tensor y = x * x;
  const Tensor d = y.detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_EQ(d.raw_data(), y.raw_data());
  (y * d).backward();
  EXPECT_EQ(x.grad().item(), 16);  // d counts as the constant 4
}

TEST(Autograd, NoGradGuardRecordsNothing) {
  const Tensor x = leaf(2);
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE((x * x).requires_grad());
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE((x * x).requires_grad());
  EXPECT_EQ((x * x).grad_fn_name(), "mul");
}

TEST(Autograd, HooksSeeTheWholeGradientAndMayReplaceIt) {
  const Tensor x = leaf(3);
  const Tensor y = x * 2;
  std::vector<double> seen;
  y.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return g * 10;
  });
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  (y + y).backward();
  EXPECT_THAT(seen, ElementsAre(2, 40));
  EXPECT_EQ(x.grad().item(), 40);
}

// As torch.autograd.grad: what leads to none of the inputs is not gone through.
TEST(Autograd, GradCallsNoHookBesideTheWay) {
  const Tensor x = leaf(2), w = leaf(3);
  int beside = 0, on_the_way = 0, of_input = 0;
  const auto counting = [](int* count) {
    return [count](const Tensor&) {
      ++*count;
      return Tensor();
    };
  };
  const Tensor u = w * 5, v = x * 7, y = u * v + u;
  u.register_hook(counting(&beside));
  v.register_hook(counting(&on_the_way));
  EXPECT_EQ(grad({y}, {x}, {}, /*retain_graph=*/true)[0].item(), 105);
  EXPECT_EQ(beside, 0);
  EXPECT_EQ(on_the_way, 1);
  v.register_hook(counting(&of_input));
  EXPECT_EQ(grad({y}, {v})[0].item(), 15);
  EXPECT_EQ(of_input, 1);
}

TEST(Autograd, HookMustKeepTheShape) {
  const Tensor x = leaf(3);
  x.register_hook([](const Tensor&) { return ones({2}, kFloat64); });
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (x * 2).backward(); }),
            "register_hook: a hook must keep the gradient's shape [], got [2]");
}

TEST(Autograd, GradOfChosenInputsTouchesNoDotGrad) {
  const Tensor a = leaf(3), b = leaf(5);
  const Tensor c = a * b;
  const Tensor y = c * c;
  const Grads g = grad({y}, {a, c}, {}, /*retain_graph=*/true);
  EXPECT_EQ(g[0].item(), 2 * 15 * 5);
  EXPECT_EQ(g[1].item(), 30);
  EXPECT_FALSE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
  EXPECT_EQ(grad({y}, {b}, {scalar(0.5, kFloat64)})[0].item(), 0.5 * 2 * 15 * 3);
}

TEST(Autograd, GradOfAnInnerTensorAlone) {
  const Tensor a = leaf(3);
  const Tensor c = a * 5;
  EXPECT_EQ(grad({c * c}, {c})[0].item(), 30);
}

TEST(Autograd, GradRunsOnlyTheOpsThatLeadToTheInputs) {
  const Tensor a = leaf(3), b = leaf(5);
  bool ran = false;
  const Tensor side = custom("side", b, [&ran](const Tensor& dy, const Saved&) -> Grads {
    ran = true;
    return {dy};
  });
  EXPECT_EQ(grad({a * side}, {a})[0].item(), 5);
  EXPECT_FALSE(ran);
}

TEST(Autograd, GradOfAnUnusedInput) {
  const Tensor a = leaf(3), b = leaf(5);
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              grad({a * 2}, {a, b});
            }),
            "grad: input 1 of shape [] was not used to compute the outputs");
  EXPECT_FALSE(grad({a * 2}, {a, b}, {}, false, /*allow_unused=*/true)[1].defined());
  EXPECT_THAT(error_text<std::invalid_argument>([&] { grad({a * 2}, {scalar(1)}); }),
              HasSubstr("grad: input 0 does not require grad"));
  EXPECT_THAT(error_text<std::invalid_argument>([&] { grad({a * 2}, {}); }),
              HasSubstr("at least one input"));
  EXPECT_THAT(error_text<std::invalid_argument>([&] {
                grad({a * 2}, {a}, {Tensor(), Tensor()});
              }),
              HasSubstr("one tensor per output, got 2 for 1"));
}

TEST(Autograd, SavedTensorChangedInPlaceIsRefused) {
  const Tensor x = leaf(1);
  const Tensor y = exp(x);
  fill_(y.detach(), 7);
  EXPECT_THAT(error_text<std::invalid_argument>([&] { y.backward(); }),
              HasSubstr("saved by op 'exp' was changed in place since then (version 1, saved at "
                        "0)"));
}

TEST(Autograd, InPlaceChangeOfATrackedTensorIsRefused) {
  const Tensor x = leaf(1);
  EXPECT_THAT(error_text<std::invalid_argument>([&] { fill_(x, 2); }),
              HasSubstr("fill_: a tensor that requires grad"));
  const NoGradGuard no_grad;
  fill_(x, 2);  // as an optimizer does
  EXPECT_EQ(x.item(), 2);
}

TEST(Autograd, OptimizerStepBetweenStepsIsAllowed) {
  const Tensor w = leaf(2);
  for (int step = 0; step < 2; ++step) {
    w.set_grad(Tensor());
    (w * w).backward();
    const NoGradGuard no_grad;
    add_(w, w.grad(), -0.25);
  }
  EXPECT_EQ(w.item(), 0.5);  // each step halves it
}

TEST(Autograd, WrongGradientShapeNamesOpAndShapes) {
  const Tensor x = ones({3}, kFloat64).set_requires_grad();
  const Tensor y =
      custom("bad", x, [](const Tensor&, const Saved&) -> Grads { return {ones({2}, kFloat64)}; });
  EXPECT_EQ(error_text<std::invalid_argument>([&] { sum(y).backward(); }),
            "backward: op 'bad' returned a gradient of shape [2] for input 0 of shape [3]");
  const Tensor z = custom("none", x, [](const Tensor&, const Saved&) -> Grads { return {}; });
  EXPECT_EQ(error_text<std::invalid_argument>([&] { sum(z).backward(); }),
            "backward: op 'none' returned 0 gradients for 1 inputs");
}

TEST(Autograd, GradientsOfSharedMemoryAreNotAliased) {
  const Tensor a = leaf(1), b = leaf(1);
  (a + b).backward();  // add hands the same gradient to both
  const NoGradGuard no_grad;
  mul_(a.grad(), 5);
  EXPECT_EQ(b.grad().item(), 1);
}

TEST(Autograd, GivenGradientIsNotStolen) {
  const Tensor x = ones({2}, kFloat64).set_requires_grad();
  const Tensor seed = ones({2}, kFloat64);
  view(x, {2}).backward(seed);
  view(x, {2}).backward(seed);
  EXPECT_THAT(x.grad().to_vector<double>(), ElementsAre(2, 2));
  EXPECT_THAT(seed.to_vector<double>(), ElementsAre(1, 1));
}

TEST(Autograd, ExpandedGradientBecomesContiguous) {
  const Tensor x = ones({3, 2}, kFloat64).set_requires_grad();
  sum(x).backward();
  EXPECT_TRUE(x.grad().is_contiguous());
  EXPECT_EQ(sum(x.grad()).item(), 6);
}

TEST(DetectAnomaly, NamesTheOpOfTheFirstNonFiniteGradient) {
  const Tensor x = leaf(0);
  const DetectAnomaly anomaly;
  const Tensor y = sqrt(x) * 2;  // the derivative of sqrt is infinite at 0
  EXPECT_EQ(error_text<std::invalid_argument>([&] { y.backward(); }),
            "detect_anomaly: op 'sqrt' returned a non-finite gradient for input 0 of shape []");
}

TEST(DetectAnomaly, NamesTheOpThatMadeTheFirstNaN) {
  const Tensor x = leaf(-1);
  const DetectAnomaly anomaly;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { log(x); }),
            "detect_anomaly: op 'log' made a NaN from inputs without one, output []");
  EXPECT_NO_THROW(masked_fill(x, ones({}, kBool), -std::numeric_limits<double>::infinity()));
}

TEST(DetectAnomaly, IsOffByDefault) {
  const Tensor x = leaf(0);
  sqrt(x).backward();
  EXPECT_TRUE(std::isinf(x.grad().item()));
}

TEST(RequiresGrad, OnlyFloatingLeaves) {
  EXPECT_THAT(error_text<std::invalid_argument>([] { zeros({2}, kInt64).set_requires_grad(); }),
              HasSubstr("only floating tensors have gradients, got int64"));
  Tensor y = leaf(1) * 2;
  EXPECT_THAT(error_text<std::invalid_argument>([&] { y.set_requires_grad(false); }),
              HasSubstr("use detach()"));
  EXPECT_THAT(error_text<std::invalid_argument>([] { scalar(1).retain_grad(); }),
              HasSubstr("retain_grad: the tensor"));
  EXPECT_THAT(error_text<std::invalid_argument>(
                  [] { scalar(1).register_hook([](const Tensor& g) { return g; }); }),
              HasSubstr("register_hook: the tensor does not require grad"));
}

}  // namespace
}  // namespace chargrad
