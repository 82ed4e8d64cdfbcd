#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

const std::vector<DType> kAll = {kFloat32, kFloat64, kBFloat16, kInt64, kBool};

Tensor ids(std::initializer_list<double> values) {
  return tensor(values, kInt64);
}

TEST(IndexSelect, EveryDimAndDtype) {
  for (const DType dtype : kAll) {
    const Tensor x = tensor({{1, 0, 1}, {0, 0, 1}}, dtype);
    EXPECT_THAT(values(index_select(x, 0, ids({1, 1, 0}))), ElementsAre(0, 0, 1, 0, 0, 1, 1, 0, 1));
    EXPECT_THAT(values(index_select(x, -1, ids({2, 0}))), ElementsAre(1, 1, 1, 0));
    EXPECT_EQ(index_select(x, 1, ids({})).shape(), (Shape{2, 0}));
    EXPECT_EQ(index_select(x, 0, ids({0})).dtype(), dtype);
  }
  const Tensor columns = transpose(tensor({{1, 2}, {3, 4}}), 0, 1);
  EXPECT_THAT(values(index_select(columns, 0, ids({1}))), ElementsAre(2, 4));
}

TEST(IndexSelect, RepeatedIndicesAddTheirGradients) {
  const auto f = [](const Tensor& x) { return index_select(x, 1, ids({0, 2, 0})); };
  EXPECT_THAT(values(gradient(f, ones({2, 3}), tensor({{1, 2, 3}, {4, 5, 6}}))),
              ElementsAre(4, 0, 2, 10, 0, 5));
  EXPECT_THAT(values(gradient(f, ones({2, 3}, kBFloat16), ones({2, 3}, kBFloat16))),
              ElementsAre(2, 0, 1, 2, 0, 1));
}

TEST(Gather, EveryDimAndDtype) {
  for (const DType dtype : kAll) {
    const Tensor x = tensor({{1, 0, 1}, {0, 0, 1}}, dtype);
    EXPECT_THAT(values(gather(x, 1, tensor({{1, 0}, {2, 2}}, kInt64))), ElementsAre(0, 1, 1, 1));
    EXPECT_THAT(values(gather(x, 0, tensor({{1, 1, 0}}, kInt64))), ElementsAre(0, 0, 1));
    EXPECT_EQ(gather(x, 1, zeros({2, 0}, kInt64)).shape(), (Shape{2, 0}));
  }
}

TEST(Gather, RepeatedIndicesAddTheirGradients) {
  const auto f = [](const Tensor& x) { return gather(x, 1, tensor({{0, 0}, {2, 1}}, kInt64)); };
  EXPECT_THAT(values(gradient(f, ones({2, 3}), tensor({{1, 2}, {3, 4}}))),
              ElementsAre(3, 0, 0, 0, 4, 3));
  // Of an expanded input: every row is the same memory.
  const auto rows = [&](const Tensor& x) { return f(expand(x, {2, 3})); };
  EXPECT_THAT(values(gradient(rows, ones({3}), tensor({{1, 2}, {3, 4}}))), ElementsAre(3, 4, 3));
}

TEST(Embedding, RowsOfTheTable) {
  const Tensor weight = tensor({{1, 2}, {3, 4}, {5, 6}});
  const Tensor y = embedding(tensor({{2, 0}, {1, 1}}, kInt64), weight);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(values(y), ElementsAre(5, 6, 1, 2, 3, 4, 3, 4));
  EXPECT_EQ(embedding(scalar(1, kInt64), weight).shape(), (Shape{2}));
  EXPECT_EQ(embedding(zeros({3, 0}, kInt64), weight).shape(), (Shape{3, 0, 2}));
}

TEST(Embedding, TheSameRowTwice) {
  const auto f = [](const Tensor& table) { return embedding(ids({0, 0}), table); };
  EXPECT_THAT(values(gradient(f, unsqueeze(tensor({0.1}), 1), unsqueeze(tensor({0.2, 0.3}), 1))),
              near({0.5}, 1e-7));
  // Rows that no id names get zero, not nothing.
  EXPECT_THAT(values(gradient(f, ones({2, 1}), unsqueeze(tensor({0.25, 0.5}), 1))),
              ElementsAre(0.75, 0));
}

TEST(Index, Errors) {
  const Tensor x = ones({2, 3});
  EXPECT_THAT(
      [&] {
        embedding(ids({0, -1}), x);
      },
      throws("embedding: id -1 at position 1 is outside [0, 2)"));
  EXPECT_THAT([&] { embedding(ids({2}), x); },
              throws("embedding: id 2 at position 0 is outside [0, 2)"));
  EXPECT_THAT([&] { embedding(ones({1}), x); },
              throws("embedding: ids must be int64, got float32"));
  EXPECT_THAT([&] { embedding(ids({0}), ones({3})); },
              throws("embedding: weight must be (V, C), got shape [3]"));
  EXPECT_THAT(
      [&] {
        embedding(ids({0}), ones({2, 3}, kInt64));
      },
      throws("embedding: weight must be floating, got int64"));
  EXPECT_THAT(
      [&] {
        index_select(x, 1, ids({0, 3}));
      },
      throws("index_select: index 3 at position 1 is outside [0, 3)"));
  EXPECT_THAT([&] { index_select(x, 1, ones({2})); },
              throws("index_select: index must be int64, got float32"));
  EXPECT_THAT(
      [&] {
        index_select(x, 1, ones({1, 2}, kInt64));
      },
      throws("index_select: index must have one dim, got shape [1, 2]"));
  EXPECT_THAT([&] { index_select(scalar(1), 0, ids({0})); },
              throws("index_select: a tensor of shape [] has no dim to select from"));
  EXPECT_THAT(
      [&] {
        gather(x, 1, unsqueeze(tensor({0, -1}, kInt64), 1));
      },
      throws("gather: index -1 at position 1 is outside [0, 3)"));
  EXPECT_THAT([&] { gather(x, 1, ids({0})); },
              throws("gather: index and input must have equally many dims, at least one, got [1] "
                     "and [2, 3]"));
  EXPECT_THAT(
      [&] {
        gather(x, 1, zeros({3, 1}, kInt64));
      },
      throws("gather: index must not be larger than the input outside dim 1, got [3, 1] "
             "and [2, 3]"));
  EXPECT_THAT(
      [&] {
        gather(x, 1, ones({2, 1}));
      },
      throws("gather: index must be int64, got float32"));
}

}  // namespace
}  // namespace chargrad::tests
