// gelu_linear beside gelu and linear one after the other: the same numbers, less memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

constexpr int64_t kAlways = 0, kNever = std::numeric_limits<int64_t>::max();

Tensor draw(const Shape& shape, uint64_t seed, DType dtype = kFloat32) {
  Generator generator(seed);
  return randn(shape, kFloat32, generator).to(dtype);
}

struct Result {
  Tensor y, dx, dw, db;
};

// In parts as a RecomputeGuard of `least_bytes` has them, for bfloat16 under autocast if `autocast`
// says so; weight and bias of x's dtype.
Result run(int64_t least_bytes, const Tensor& x, int64_t out, DType autocast = kFloat32,
           bool retain_graph = false) {
  const RecomputeGuard guard(least_bytes);
  const int64_t in = x.size(-1);
  const Tensor leaf = x.detach().set_requires_grad();
  const Tensor w = draw({out, in}, 1, x.dtype()).set_requires_grad();
  const Tensor b = draw({out}, 2, x.dtype()).set_requires_grad();
  Tensor y;
  {
    const AutocastGuard cast(autocast);
    y = gelu_linear(leaf * 1, w, b);
  }
  y.backward(draw(y.shape(), 3).to(y.dtype()), retain_graph);
  return {y.detach(), leaf.grad(), w.grad(), b.grad()};
}

void expect_same(const Result& got, const Result& want) {
  EXPECT_EQ(values(got.y), values(want.y));
  EXPECT_EQ(values(got.dx), values(want.dx));
  EXPECT_EQ(values(got.db), values(want.db));
  EXPECT_EQ(got.y.dtype(), want.y.dtype());
  EXPECT_EQ(got.dw.dtype(), want.dw.dtype());
}

// Parts of one row each: all but dW, whose sum has other parts, is the same to the bit.
TEST(GeluLinear, IsGeluAndLinear) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = draw({5, 3, 33}, 4, dtype);
    for (const DType autocast : {kFloat32, kBFloat16}) {
      const Result got = run(kAlways, x, 17, autocast), want = run(kNever, x, 17, autocast);
      expect_same(got, want);
      // Sums of 15 products below 8, of numbers that bfloat16 and float32 have alike but for the
      // last rounding of dW itself.
      const double rounding = dtype == kBFloat16 ? 0x1p-8 : dtype == kFloat32 ? 0x1p-22 : 0x1p-50;
      EXPECT_THAT(values(got.dw), near(values(want.dw), 16 * rounding));
    }
  }
}

// By default parts have 16 MiB: here two and a rest.
TEST(GeluLinear, LargeInputsByDefault) {
  const Tensor x = draw({3 << 10, 3 << 10}, 5);
  const Result got = run(int64_t{4} << 20, x, 3), want = run(kNever, x, 3);
  expect_same(got, want);
  EXPECT_THAT(values(got.dw),
              near(values(want.dw), 1e-3));  // 3,072 products of some 1, sum some 55
  EXPECT_GT(values(amax(abs(want.dw)))[0], 100);
}

TEST(GeluLinear, KeepsItsInputAlone) {
  const Tensor w = draw({8, 64}, 1).set_requires_grad();
  const auto bytes_kept = [&](int64_t least_bytes) {
    const RecomputeGuard guard(least_bytes);
    const int64_t before = memory_stats().in_use;
    const Tensor y = gelu_linear(neg(draw({32, 64}, 2).set_requires_grad()), w);
    return memory_stats().in_use - before - y.storage()->bytes();
  };
  const int64_t x = int64_t{32} * 64 * 4;
  EXPECT_EQ(bytes_kept(kAlways), 2 * x);  // the leaf, and the input
  EXPECT_EQ(bytes_kept(kNever), 3 * x);   // the leaf, gelu's slope, linear's input
}

// The gradient of x lies where x lay, unless somebody may still want x.
TEST(GeluLinear, TheGradientTakesTheMemoryOfX) {
  const RecomputeGuard guard(kAlways);
  const Tensor in = draw({32, 64}, 1).set_requires_grad(), w = draw({8, 64}, 2).set_requires_grad();
  const auto place_of_gradient = [&](bool held, bool retain_graph) {
    Tensor x = in * 1;
    const void* const place = x.raw_data();
    const std::vector<double> before = values(x);
    const void* place_of_dx = nullptr;
    x.register_hook([&](const Tensor& dx) {
      place_of_dx = dx.raw_data();
      return Tensor();
    });
    const Tensor y = gelu_linear(x, w);
    const Tensor other = held ? x.detach() : Tensor();
    x = Tensor();
    y.backward(ones_like(y), retain_graph);
    if (held) {
      EXPECT_EQ(values(other), before);
    }
    return place_of_dx == place;
  };
  EXPECT_TRUE(place_of_gradient(false, false));
  EXPECT_FALSE(place_of_gradient(true, false));
  EXPECT_FALSE(place_of_gradient(false, true));
}

TEST(GeluLinear, BackwardTwice) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = draw({5, 7}, 1).set_requires_grad(), w = draw({3, 7}, 2).set_requires_grad();
  const Tensor y = sum(gelu_linear(x * 1, w));
  y.backward({}, /*retain_graph=*/true);
  const std::vector<double> dx = values(x.grad()), dw = values(w.grad());
  y.backward();
  EXPECT_EQ(values(x.grad()), values(from_vector(dx, {5, 7}) * 2));
  EXPECT_EQ(values(w.grad()), values(from_vector(dw, {3, 7}) * 2));
}

// After an error, here of a hook, the graph is still there; but x is not.
TEST(GeluLinear, ABackwardThatWasCutShortIsNotRepeated) {
  const RecomputeGuard guard(kAlways);
  const Tensor in = draw({5, 7}, 1).set_requires_grad(), w = draw({3, 7}, 2).set_requires_grad();
  Tensor x = in * 1;
  x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
  const Tensor h = x * 1;
  const Tensor y = sum(gelu_linear(h * 1, w));
  EXPECT_THROW(y.backward(), std::runtime_error);
  EXPECT_THROW(y.backward(), std::invalid_argument);
}

TEST(GeluLinear, OnlyWhatIsWanted) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = draw({5, 7}, 1), w = draw({3, 7}, 2);
  const Tensor some_x = x.detach().set_requires_grad(), some_w = w.detach().set_requires_grad();
  const std::vector<double> dx = values(grad({sum(gelu_linear(some_x, w))}, {some_x})[0]);
  const std::vector<double> dw = values(grad({sum(gelu_linear(x, some_w))}, {some_w})[0]);
  const Grads both = grad({sum(gelu_linear(some_x, some_w))}, {some_x, some_w});
  EXPECT_EQ(values(both[0]), dx);
  EXPECT_EQ(values(both[1]), dw);
  EXPECT_FALSE(gelu_linear(x, w).requires_grad());
}

TEST(GeluLinear, StridedOperands) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = draw({7, 5}, 1).transpose(0, 1), w = draw({7, 3}, 2).transpose(0, 1);
  EXPECT_EQ(values(gelu_linear(x, w)), values(linear(gelu(x), w)));
}

TEST(GeluLinear, NoRows) {
  const RecomputeGuard guard(kAlways);
  const Tensor x = empty({0, 7}).set_requires_grad(), w = draw({3, 7}, 2).set_requires_grad();
  const Tensor y = gelu_linear(x, w);
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
  sum(y).backward();
  EXPECT_EQ(x.grad().shape(), (Shape{0, 7}));
  EXPECT_EQ(values(w.grad()), values(zeros({3, 7})));
}

TEST(GeluLinear, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_THAT([&] { gelu_linear(Tensor(), zeros({4, 3})); }, throws("gelu_linear: x is undefined"));
  EXPECT_THAT(
      [&] {
        gelu_linear(x, zeros({3, 4}));
      },
      throws("gelu_linear: the last dim of x must be weight's in, got x [2, 3] and weight "
             "[3, 4]"));
  EXPECT_THAT(
      [&] {
        gelu_linear(x, zeros({4, 3}), zeros({3}));
      },
      throws("gelu_linear: bias must have shape [out], got bias [3] and weight [4, 3]"));
}

}  // namespace
}  // namespace chargrad::tests
