// Results that are made again in backward instead of kept: the same bits, less memory, and the same
// rules for in-place changes, repeated backward passes and freed graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"
#include "tests/error_text.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

constexpr int64_t kAlways = 0, kNever = std::numeric_limits<int64_t>::max();

// A leaf with other values for each `seed`.
Tensor leaf(const Shape& shape, uint64_t seed, DType dtype = kFloat32) {
  Generator generator(seed);
  return randn(shape, kFloat32, generator).to(dtype).set_requires_grad();
}

// 2 x, which counts how often it is made again.
Tensor counted(const Tensor& x, int* count, double factor = 2) {
  return record(
      "counted", x.detach() * 2, {x}, save(x),
      [](const Tensor& dy, const Saved&) -> Grads { return {dy * 2}; },
      [count, factor](const Saved& saved) {
        ++*count;
        return saved[0] * factor;
      });
}

// The MLP of a transformer's block behind its layer norm: result, then a gradient per parameter.
std::vector<std::vector<double>> run_mlp(int64_t least_bytes, DType dtype, DType autocast,
                                         GeluApproximate form) {
  const RecomputeGuard guard(least_bytes);
  const std::vector<Tensor> in = {leaf({3, 7, 8}, 1, dtype), leaf({8}, 2, dtype),
                                  leaf({8}, 3, dtype),       leaf({16, 8}, 4, dtype),
                                  leaf({16}, 5, dtype),      leaf({8, 16}, 6, dtype)};
  Tensor y;
  {
    const AutocastGuard guard_of_forward(autocast);
    y = linear(gelu(linear(layer_norm(in[0], in[1], in[2]), in[3], in[4]), form), in[5]);
  }
  y.backward(leaf({3, 7, 8}, 7).detach().to(y.dtype()));
  std::vector<std::vector<double>> results = {values(y)};
  for (const Tensor& x : in) {
    results.push_back(values(x.grad()));
  }
  return results;
}

void expect_same_bits(DType dtype, DType autocast) {
  for (const auto form : {GeluApproximate::kNone, GeluApproximate::kTanh}) {
    EXPECT_EQ(run_mlp(kAlways, dtype, autocast, form), run_mlp(kNever, dtype, autocast, form));
  }
}

TEST(Recompute, GradientsAreTheSameToTheBit) {
  expect_same_bits(kFloat32, kFloat32);
  expect_same_bits(kFloat64, kFloat64);
  const DetectAnomaly anomaly;
  expect_same_bits(kFloat32, kFloat32);
}

TEST(Recompute, GradientsAreTheSameToTheBitUnderAutocastAndInBFloat16) {
  expect_same_bits(kFloat32, kBFloat16);
  expect_same_bits(kBFloat16, kFloat32);
}

TEST(Recompute, LargeResultsByDefault) {
  EXPECT_FALSE(is_recomputed(empty({(1 << 20) - 1})));
  EXPECT_TRUE(is_recomputed(empty({1 << 20})));
  {
    const RecomputeGuard guard(400);
    EXPECT_FALSE(is_recomputed(empty({99})));
    EXPECT_TRUE(is_recomputed(empty({100})));
  }
  EXPECT_FALSE(is_recomputed(empty({100})));
}

// What the graph of linear(gelu(linear(layer_norm(x)))) takes beside its result.
int64_t bytes_kept(int64_t least_bytes) {
  const RecomputeGuard guard(least_bytes);
  const Tensor x = leaf({64, 64}, 1), w1 = leaf({256, 64}, 2), w2 = leaf({64, 256}, 3);
  const int64_t before = memory_stats().in_use;
  const Tensor y = linear(gelu(linear(layer_norm(x), w1)), w2);
  return memory_stats().in_use - before - y.storage()->bytes();
}

TEST(Recompute, LayerNormAndGeluResultsAreNotKept) {
  const int64_t row = dtype_size(kFloat32) * 64, U = 64 * row, statistics = 2 * row;
  EXPECT_EQ(bytes_kept(kNever), U + statistics + 4 * U + 4 * U);  // and GELU's slope
  EXPECT_EQ(bytes_kept(kAlways), statistics + 4 * U);             // GELU's input
}

// Result and gradients of linear(layer_norm(embedding + positions)).
std::vector<std::vector<double>> run_embedding(int64_t least_bytes, int64_t* kept) {
  const RecomputeGuard guard(least_bytes);
  Generator generator(4);
  const Tensor ids = randint(0, 7, {32}, generator);
  const Tensor table = leaf({7, 64}, 1), positions = leaf({64}, 2), w = leaf({8, 64}, 3);
  const int64_t before = memory_stats().in_use;
  const Tensor y = linear(layer_norm(embedding(ids, table) + positions), w);
  *kept = memory_stats().in_use - before - y.storage()->bytes();
  y.backward(leaf({32, 8}, 5).detach());
  return {values(y), values(table.grad()), values(positions.grad()), values(w.grad())};
}

TEST(Recompute, SumsOfEmbeddingsAreNotKept) {
  int64_t always = 0, never = 0;
  EXPECT_EQ(run_embedding(kAlways, &always), run_embedding(kNever, &never));
  const int64_t sum = int64_t{32} * 64 * dtype_size(kFloat32), statistics = int64_t{2} * 32 * 4;
  EXPECT_EQ(always, statistics);
  EXPECT_EQ(never, statistics + 2 * sum);  // what layer_norm and linear were given
}

TEST(Recompute, SumsOfTwoLargeTensorsAreKept) {
  const RecomputeGuard guard(kAlways);
  const Tensor a = leaf({4, 6}, 1), b = leaf({4, 6}, 2), w = leaf({5, 6}, 3);
  Tensor sum_of_both = a + b;
  const Tensor y = linear(sum_of_both, w);
  const std::weak_ptr<Storage> storage = sum_of_both.storage();
  sum_of_both = Tensor();
  EXPECT_FALSE(storage.expired());
}

// What is four results away from what is kept is kept itself.
TEST(Recompute, ChainsAreCut) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({6, 8}, 1, kFloat64), w = leaf({5, 8}, 2, kFloat64);
  const Tensor one = ones({}, kFloat64);
  for (const int length : {0, 1, 3, 4, 5, 9}) {
    int count = 0;
    Tensor z = counted(x, &count);
    for (int i = 0; i < length; ++i) {
      z = z + one;
    }
    const Tensor y = sum(linear(z, w));
    z = Tensor();
    const Tensor dw = grad({y}, {w})[0];
    EXPECT_EQ(count, length < 4 ? 1 : 0) << length;
    EXPECT_THAT(values(dw.select(0, 0)), near(values(sum(x * 2 + length, {0})), 1e-13));
  }
}

// When the gradient of x arrives at the op that made x, x is gone again.
TEST(Recompute, MemoryIsFreeBeforeTheGradientOfXTakesIt) {
  const RecomputeGuard guard(kAlways);
  const Tensor in = leaf({64, 64}, 1), w = leaf({64, 64}, 2), dy = leaf({64, 64}, 3).detach();
  Tensor x = layer_norm(in);
  int64_t at_x = 0;
  x.register_hook([&at_x](const Tensor&) {
    at_x = memory_stats().in_use;
    return Tensor();
  });
  const Tensor y = linear(x, w);
  x = Tensor();
  const int64_t before = memory_stats().in_use;
  y.backward(dy);
  EXPECT_EQ(at_x, before + 2 * in.storage()->bytes());  // the gradients of x and w
}

TEST(Recompute, OnceForEachUseInEachBackward) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2), v = leaf({4, 3}, 3);
  int count = 0;
  const Tensor y = sum(linear(counted(x, &count), w));
  EXPECT_EQ(count, 0);
  y.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(count, 1);
  const std::vector<double> first = values(w.grad());
  y.backward();
  EXPECT_EQ(count, 2);
  EXPECT_EQ(values(w.grad()), values(from_vector(first, {4, 3}) * 2));
  EXPECT_THAT([&] { y.backward(); },
              throws("backward: the graph at op 'sum' was freed by an earlier backward; pass "
                     "retain_graph to keep it"));

  {
    Tensor z = counted(x, &count);
    const Tensor both = sum(linear(z, w) * linear(z, v));
    z = Tensor();
    both.backward();
  }
  EXPECT_EQ(count, 4);
}

TEST(Recompute, OnlyWhereTheWeightWantsAGradient) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2);
  int count = 0;
  const Tensor y = sum(linear(counted(x, &count), w.detach()));
  y.backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(count, 0);
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE(linear(counted(x, &count), w).requires_grad());
  }
  EXPECT_EQ(count, 0);
}

// What is made again is what the gradient is computed from: 1 % more, and dW is 1 % more.
TEST(Recompute, TheGradientComesFromTheResultMadeAgain) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1, kFloat64), w = leaf({4, 3}, 2, kFloat64);
  int count = 0;
  const auto gradient_of_w = [&](double factor) {
    const Tensor y = sum(linear(counted(x, &count, factor), w));
    return values(grad({y}, {w})[0]);
  };
  const std::vector<double> right = gradient_of_w(2), wrong = gradient_of_w(2.02);
  ASSERT_EQ(right.size(), 12);
  for (size_t i = 0; i < right.size(); ++i) {
    EXPECT_NEAR(wrong[i], 1.01 * right[i], 1e-14);
  }
}

TEST(Recompute, AResultThatLivesIsUsed) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2);
  int count = 0;
  const Tensor z = counted(x, &count);
  sum(linear(z, w)).backward();
  EXPECT_EQ(count, 0);
  EXPECT_EQ(values(w.grad().select(0, 0)), values(sum(z.detach(), {0})));
}

TEST(Recompute, InPlaceChangesOfALivingResultAreRefused) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2);
  const Tensor z = layer_norm(x), y = sum(linear(z, w));
  fill_(z.detach(), 7);
  EXPECT_THAT([&] { y.backward(); },
              throws("backward: a tensor of shape [2, 3] saved by op 'linear' was changed in place "
                     "since then (version 1, saved at 0)"));
}

// The gradient is that of the result as linear saw it.
TEST(Recompute, InPlaceChangesOfAResultThatIsGoneDoNoHarm) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2);
  Tensor z = layer_norm(x);
  const std::vector<double> column_sums = values(sum(z.detach(), {0}));
  const Tensor y = sum(linear(z, w));
  fill_(z.detach(), 7);
  z = Tensor();
  y.backward();
  EXPECT_EQ(values(w.grad().select(0, 0)), column_sums);
}

// So too where it was changed before linear saw it.
TEST(Recompute, AResultThatWasChangedIsKept) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2);
  for (const bool by_gelu : {false, true}) {
    Tensor z = by_gelu ? gelu(x) : layer_norm(x);
    mul_(z.detach(), 2);
    const std::vector<double> column_sums = values(sum(z.detach(), {0}));
    const Tensor y = sum(linear(z, w));
    z = Tensor();
    EXPECT_EQ(values(grad({y}, {w})[0].select(0, 0)), column_sums);
  }
}

TEST(Recompute, InPlaceChangesOfWhatTheResultWasMadeFromAreRefused) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({2, 3}, 1), w = leaf({4, 3}, 2), bias = zeros({3}).set_requires_grad();
  // Bumps `changed` between forward and backward and compares the error.
  const auto expect_refusal = [&](const auto& make, const Tensor& changed,
                                  const std::string& what) {
    const Tensor y = sum(linear(make(), w));
    const std::string version = std::to_string(changed.version());
    changed.bump_version();
    EXPECT_EQ(error_text<std::invalid_argument>([&] { y.backward(); }),
              "backward: a tensor of shape " + what + " was changed in place since then (version " +
                  std::to_string(changed.version()) + ", saved at " + version + ")");
  };
  const auto norm = [&] { return layer_norm(x, {}, bias); };
  expect_refusal(norm, x, "[2, 3] saved by op 'layer_norm'");
  expect_refusal(norm, bias, "[3] saved by op 'layer_norm'");
  expect_refusal([&] { return gelu(x); }, x, "[2, 3] saved by op 'gelu'");
}

// Others may keep the result, or a rounded copy or another view of it.
std::vector<std::vector<double>> run_other_uses(int64_t least_bytes) {
  const RecomputeGuard guard(least_bytes);
  const Tensor x = leaf({4, 6}, 1), w = leaf({5, 6}, 2), v = leaf({5, 3}, 3);
  const auto loss = [&] {
    const Tensor z = layer_norm(x);
    Tensor y = sum(linear(z, w)) + sum(linear(z.reshape({8, 3}), v)) + sum(z * gelu(z));
    const AutocastGuard autocast(kBFloat16);
    y = y + sum(linear(z, w).to(kFloat32));
    return y + sum(linear(transpose(gelu(transpose(x, 0, 1)), 0, 1), w).to(kFloat32));
  };
  loss().backward();
  return {values(x.grad()), values(w.grad()), values(v.grad())};
}

TEST(Recompute, OtherUsesOfAResultUnderAutocast) {
  EXPECT_EQ(run_other_uses(kAlways), run_other_uses(kNever));
}

// gelu's backward writes over the gradient that it is given, unless somebody else holds it.
TEST(Recompute, GradientsThatOthersHoldAreNotOverwritten) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = leaf({3}, 1), dy = tensor({1, 2, 3});
  gelu(x).backward(dy);
  EXPECT_THAT(values(dy), ElementsAre(1, 2, 3));

  Tensor y = gelu(x), seen;
  y.retain_grad();
  y.register_hook([&seen](const Tensor& g) {
    seen = g;
    return Tensor();
  });
  sum(y * 3).backward();
  EXPECT_THAT(values(y.grad()), ElementsAre(3, 3, 3));
  EXPECT_THAT(values(seen), ElementsAre(3, 3, 3));

  y = gelu(x);
  const Grads grads = grad({sum(y * 3)}, {x, y});
  EXPECT_THAT(values(grads[1]), ElementsAre(3, 3, 3));
}

}  // namespace
}  // namespace chargrad::tests
