#include "engine/autocast.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad {
namespace {

using testing::Each;
using testing::ElementsAre;
using tests::near;
using tests::throws;
using tests::values;

TEST(MatMul, VectorsMatricesAndBatches) {
  const Tensor a = tensor({{1, 2}, {3, 4}}), b = tensor({{5, 6}, {7, 8}});
  EXPECT_THAT(values(matmul(a, b)), ElementsAre(19, 22, 43, 50));
  EXPECT_EQ(matmul(tensor({1, 2}), tensor({3, 4})).item(), 11);
  EXPECT_EQ(matmul(tensor({1, 2}), tensor({3, 4})).shape(), Shape{});
  EXPECT_THAT(values(matmul(tensor({1, 2}), b)), ElementsAre(19, 22));
  EXPECT_THAT(values(matmul(a, tensor({1, 2}))), ElementsAre(5, 11));
  EXPECT_EQ(matmul(zeros({3}), zeros({2, 3, 4})).shape(), (Shape{2, 4}));
  EXPECT_EQ(matmul(zeros({2, 4, 3}), zeros({3})).shape(), (Shape{2, 4}));
  EXPECT_EQ(matmul(zeros({2, 1, 3, 4}), zeros({5, 4, 6})).shape(), (Shape{2, 5, 3, 6}));
}

TEST(MatMul, EmptySizes) {
  EXPECT_THAT(values(matmul(zeros({2, 0}), zeros({0, 3}))), Each(0));
  EXPECT_EQ(matmul(zeros({0, 2}), zeros({2, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(matmul(zeros({0, 3, 2}), zeros({2, 3})).shape(), (Shape{0, 3, 3}));
}

TEST(MatMul, BatchTimesMatrixGradient) {
  const Tensor x = ones({2, 3, 4}).set_requires_grad(), w = ones({4, 5}).set_requires_grad();
  sum(matmul(x, w)).backward();
  EXPECT_EQ(w.grad().shape(), (Shape{4, 5}));
  EXPECT_THAT(values(w.grad()), Each(6));
  EXPECT_THAT(values(x.grad()), Each(5));
}

TEST(MatMul, ColumnsOfTheRightMatrixAreDottedOneByOne) {
  // "x_sat @ W_query" of the lesson, by hand.
  const Tensor x = tensor({0.57, 0.85, 0.64});
  const Tensor w = tensor({{0.2961, 0.5166}, {0.2517, 0.6886}, {0.0740, 0.8665}});
  const Tensor by_hand = stack({matmul(x, select(w, 1, 0)), matmul(x, select(w, 1, 1))});
  EXPECT_THAT(values(matmul(x, w)), near(values(by_hand), 1e-7));
  // The weights are printed to 5e-5, and so is the result: (0.57 + 0.85 + 0.64 + 1) * 5e-5.
  EXPECT_THAT(values(by_hand), near({0.4300, 1.4343}, 1.53e-4));
}

TEST(MatMul, PromotesDTypes) {
  EXPECT_EQ(matmul(zeros({2, 2}), zeros({2, 2}, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(matmul(zeros({2, 2}, kBFloat16), zeros({2, 2})).dtype(), kFloat32);
}

TEST(MatMul, AutocastRoundsOperandsAndResult) {
  const Tensor a = tensor({1 + 0x1p-7, 1 + 0x1p-9}), b = tensor({1, 1});
  const AutocastGuard guard(kBFloat16);
  const Tensor y = matmul(a, b);
  EXPECT_EQ(y.dtype(), kBFloat16);
  // The second number rounds to 1; their sum 2 + 2^-7 to 2, the even neighbour.
  EXPECT_EQ(y.item(), 2);
}

TEST(MatMul, SumsInFloat32UnderAutocast) {
  // In bfloat16 the sum of ones would stop at 256.
  const AutocastGuard guard(kBFloat16);
  EXPECT_EQ(matmul(ones({1024}), ones({1024})).item(), 1024);
}

TEST(MatMul, GradientsUnderAutocastHaveTheInputsDTypes) {
  const Tensor a = ones({2, 3}).set_requires_grad(), b = ones({3, 2}).set_requires_grad();
  {
    const AutocastGuard guard(kBFloat16);
    sum(matmul(a, b)).backward();
  }
  EXPECT_EQ(a.grad().dtype(), kFloat32);
  EXPECT_THAT(values(b.grad()), Each(2));
}

// Values and gradients of bfloat16 products are those of the rounded operands, rounded once:
// whatever the order of their sums, they are exact in float32 here.
TEST(MatMul, BFloat16ProductsAndGradientsAreRoundedOnce) {
  for (const auto& [shape_a, shape_b] : {std::pair<Shape, Shape>{{5, 33}, {33, 7}},
                                         {{2, 3, 5, 33}, {3, 33, 7}},
                                         {{4, 5, 33}, {33, 7}}}) {
    // Whole numbers of up to 8: sums of at most 33 * 24 products stay below 2^24.
    const Tensor a = randint(-8, 9, shape_a).to(kBFloat16).set_requires_grad();
    const Tensor b = randint(-8, 9, shape_b).to(kBFloat16).set_requires_grad();
    const Tensor exact_a = a.detach().to(kFloat32).set_requires_grad();
    const Tensor exact_b = b.detach().to(kFloat32).set_requires_grad();
    const Tensor y = matmul(a, b), exact = matmul(exact_a, exact_b);
    EXPECT_EQ(y.dtype(), kBFloat16);
    EXPECT_EQ(values(y), values(exact.to(kBFloat16)));
    const Tensor dy = randint(-8, 9, y.shape()).to(kBFloat16);
    y.backward(dy);
    exact.backward(dy.to(kFloat32));
    EXPECT_EQ(a.grad().dtype(), kBFloat16);
    EXPECT_EQ(values(a.grad()), values(exact_a.grad().to(kBFloat16)));
    EXPECT_EQ(values(b.grad()), values(exact_b.grad().to(kBFloat16)));
  }
}

TEST(MatMul, Refusals) {
  EXPECT_THAT(
      [] {
        matmul(zeros({64, 384}), zeros({256, 384}));
      },
      throws("matmul: inner sizes must be equal, got a [64, 384] and b [256, 384] "
             "(a.size(-1)=384, b.size(-2)=256)"));
  EXPECT_THAT([] { matmul(zeros({3}), zeros({4})); },
              throws("matmul: inner sizes must be equal, got a [3] and b [4] (a.size(-1)=3, "
                     "b.size(0)=4)"));
  EXPECT_THAT(
      [] {
        matmul(zeros({2, 3, 4}), zeros({3, 4, 5}));
      },
      throws("matmul: sizes must be equal or 1 to broadcast, got shapes [2] and [3]"));
  EXPECT_THAT([] { matmul(scalar(1), zeros({2})); },
              throws("matmul: both tensors must have at least one dim, got a [] and b [2]"));
  EXPECT_THAT(
      [] {
        matmul(zeros({2, 2}, kInt64), zeros({2, 2}));
      },
      throws("matmul: a must be floating, got int64"));
}

TEST(LinearOp, MultipliesByTheTransposedWeight) {
  const Tensor x = tensor({{1, 2}}), w = tensor({{3, 4}, {5, 6}, {7, 8}}), b = tensor({1, 0, 0});
  EXPECT_THAT(values(linear(x, w)), ElementsAre(11, 17, 23));
  EXPECT_THAT(values(linear(x, w, b)), ElementsAre(12, 17, 23));
  EXPECT_EQ(linear(zeros({2, 3, 2}), w, b).shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(linear(zeros({2}), w).shape(), Shape{3});
  EXPECT_EQ(linear(zeros({0, 2}), w, b).shape(), (Shape{0, 3}));
}

TEST(LinearOp, OneRowEqualsTheSameRowAmongMany) {
  const Tensor x = randn({37, 19}), w = randn({65, 19}), b = randn({65});
  const Tensor all = linear(x, w, b);
  for (const int64_t row : {0, 5, 36}) {
    EXPECT_EQ(values(linear(narrow(x, 0, row, 1), w, b)), values(select(all, 0, row)));
  }
}

TEST(LinearOp, BiasGradientSumsRows) {
  const Tensor b = zeros({3}).set_requires_grad();
  linear(ones({2, 5, 4}), ones({3, 4}), b).backward(ones({2, 5, 3}));
  EXPECT_THAT(values(b.grad()), Each(10));
}

// 257 has nine bits, one more than bfloat16.
TEST(LinearOp, BiasGradientUnderAutocastIsNotRounded) {
  const Tensor b = zeros({3}).set_requires_grad();
  {
    const AutocastGuard guard(kBFloat16);
    linear(ones({257, 4}), ones({3, 4}), b).backward(ones({257, 3}, kBFloat16));
  }
  EXPECT_EQ(b.grad().dtype(), kFloat32);
  EXPECT_THAT(values(b.grad()), Each(257));
}

TEST(LinearOp, AutocastGivesBFloat16AndFloat32Gradients) {
  const Tensor x = ones({2, 4}), w = full({3, 4}, 1 + 0x1p-9).set_requires_grad();
  {
    const AutocastGuard guard(kBFloat16);
    const Tensor y = linear(x, w);
    EXPECT_EQ(y.dtype(), kBFloat16);
    EXPECT_THAT(values(y), Each(4));  // the weight rounds to 1
    sum(y.to(kFloat32)).backward();
  }
  EXPECT_EQ(w.grad().dtype(), kFloat32);
  EXPECT_THAT(values(w.grad()), Each(2));
}

// As for matmul; the bias, its gradient and the weight's keep the bits of float32.
TEST(LinearOp, AutocastRoundsOnceAndKeepsFloat32SumsForTheWeights) {
  const Tensor x = randint(-8, 9, {3, 11, 34}).to(kFloat32).set_requires_grad();
  const Tensor w = randint(-8, 9, {19, 34}).to(kFloat32).set_requires_grad();
  const Tensor b = (randint(-8, 9, {19}).to(kFloat32) + 0x1p-10).set_requires_grad();
  const Tensor dy = randint(-8, 9, {3, 11, 19}).to(kFloat32) + 0.125;
  linear(x, w, b).backward(dy);
  const Tensor dx = x.grad(), dw = w.grad(), db = b.grad();
  const Tensor exact = linear(x.detach(), w.detach(), b.detach());
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const Tensor in = x.detach().to(dtype).set_requires_grad();
    w.set_grad({});
    b.set_grad({});
    Tensor y;
    {
      const AutocastGuard guard(kBFloat16);
      y = linear(in, w, b);
    }
    EXPECT_EQ(y.dtype(), kBFloat16);
    EXPECT_EQ(values(y), values(exact.to(kBFloat16)));
    y.backward(dy.to(kBFloat16));
    EXPECT_EQ(in.grad().dtype(), dtype);
    EXPECT_EQ(values(in.grad()), values(dx.to(dtype)));
    EXPECT_EQ(w.grad().dtype(), kFloat32);
    EXPECT_EQ(values(w.grad()), values(dw));
    EXPECT_EQ(values(b.grad()), values(db));
  }
}

TEST(LinearOp, Refusals) {
  EXPECT_THAT(
      [] {
        linear(zeros({2, 3}), zeros({4, 5}));
      },
      throws("linear: the last dim of x must be weight's in, got x [2, 3] and weight "
             "[4, 5]"));
  EXPECT_THAT(
      [] {
        linear(zeros({2, 3}), zeros({3}));
      },
      throws("linear: weight must have shape [out, in], got [3]"));
  EXPECT_THAT(
      [] {
        linear(zeros({2, 3}), zeros({4, 3}), zeros({3}));
      },
      throws("linear: bias must have shape [out], got bias [3] and weight [4, 3]"));
}

}  // namespace
}  // namespace chargrad
