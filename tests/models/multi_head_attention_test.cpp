#include "models/multi_head_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/error_text.h"
#include "tests/models/lesson_testing.h"

namespace chargrad {
namespace {

constexpr int64_t kEmbd = 6, kHeads = 3, kHeadSize = 4, kBlock = 7;
// Sums of a dozen products of numbers below about 4, in two orders.
constexpr double kRounding = 2e-6;

struct Pair {
  explicit Pair(double dropout)
      : list(kEmbd, kHeads, kHeadSize, kBlock, dropout, generator),
        split(kEmbd, kHeads, kHeadSize, dropout, generator),
        x(randn({2, 5, kEmbd}, kFloat32, generator)) {
    split.copy_heads(list);
  }
  Generator generator{11};
  HeadList list;
  MultiHeadAttention split;
  Tensor x;
};

TEST(MultiHeadAttention, ListSplitAndFusedOpAgree) {
  const Pair p(0);
  const Tensor y = p.split.forward(p.x);
  EXPECT_EQ(y.shape(), (Shape{2, 5, kHeads * kHeadSize}));
  EXPECT_LT(max_difference(y, p.list.forward(p.x)), kRounding);
  EXPECT_LT(max_difference(y, p.split.forward_fused(p.x)), kRounding);
  // Head 1's columns are its own output.
  EXPECT_LT(max_difference(narrow(y, 2, kHeadSize, kHeadSize), p.list.heads[1].forward(p.x)),
            kRounding);
}

TEST(MultiHeadAttention, GradientsAgree) {
  Pair p(0.4);
  const DropoutKey key{5, 3};
  const Tensor upstream = randn({2, 5, kHeads * kHeadSize}, kFloat32, p.generator);
  p.list.forward(p.x, key).backward(upstream);
  std::vector<Tensor> query_grads;
  for (size_t h = 0; h < p.list.heads.size(); ++h) {
    query_grads.push_back(p.list.heads[h].query.weight.grad());
  }
  p.split.forward(p.x, key).backward(upstream);
  const Tensor twin = p.split.query.weight.grad();
  p.split.zero_grad();
  p.split.forward_fused(p.x, key).backward(upstream);
  // Sums over 10 positions more than above.
  EXPECT_LT(max_difference(cat(query_grads), twin), 10 * kRounding);
  EXPECT_LT(max_difference(p.split.query.weight.grad(), twin), 10 * kRounding);
}

TEST(MultiHeadAttention, DropsTheSameWeightsInListSplitAndFusedOp) {
  const Pair p(0.4);
  const DropoutKey key{5, 3};
  const Tensor y = p.split.forward(p.x, key);
  EXPECT_LT(max_difference(y, p.list.forward(p.x, key)), kRounding);
  EXPECT_LT(max_difference(y, p.split.forward_fused(p.x, key)), kRounding);
  EXPECT_GT(max_difference(y, p.split.forward(p.x, DropoutKey{5, 4})), 1e-2);
}

// With values that are the identity, the fused op's output is its dropped weights.
TEST(MultiHeadAttention, MaskOfEveryElementIsTheKeysAtItsPlace) {
  const int64_t B = 2, H = 3, T = 5;
  const DropoutKey key{77, 1};
  Generator generator(3);
  const Tensor q = randn({B, H, T, 4}, kFloat32, generator);
  const Tensor k = randn({B, H, T, 4}, kFloat32, generator);
  AttentionOptions options;
  options.dropout_p = 0.4;
  options.key = key;
  const Tensor fused = scaled_dot_product_attention(q, k, expand(eye(T), {B, H, T, T}), options);
  const Tensor mask = dropout(ones({B, H, T, T}), 0.4, true, key);
  int64_t dropped = 0;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t i = 0; i < T; ++i) {
        for (int64_t j = 0; j < T; ++j) {
          EXPECT_EQ(fused.item({b, h, i, j}) == 0, mask.item({b, h, i, j}) == 0);
          dropped += fused.item({b, h, i, j}) == 0 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, B * H * T * T);
}

TEST(MultiHeadAttention, DropoutIsOffInEvaluation) {
  Pair p(0.4);
  p.list.eval();
  p.split.eval();
  const Tensor y = p.split.forward(p.x);
  EXPECT_EQ(y.to_vector<float>(), p.split.forward(p.x).to_vector<float>());
  EXPECT_LT(max_difference(y, p.list.forward(p.x)), kRounding);
  EXPECT_LT(max_difference(y, p.split.forward_fused(p.x)), kRounding);
}

TEST(MultiHeadAttention, DoesNotSeeTheFuture) {
  const Pair p(0);
  const Tensor changed = clone(p.x);
  fill_(changed.select(1, 4), 7);
  EXPECT_EQ(narrow(p.split.forward(p.x), 1, 0, 4).to_vector<float>(),
            narrow(p.split.forward(changed), 1, 0, 4).to_vector<float>());
}

TEST(MultiHeadAttention, Refuses) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { HeadList(4, 0, 2, 3); }),
            "HeadList: n_head must be positive, got 0");
  EXPECT_EQ(error_text<std::invalid_argument>([] { MultiHeadAttention(4, 2, 2, 1.5); }),
            "MultiHeadAttention: dropout must be in [0, 1], got 1.5");
  const Pair p(0);
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              p.list.forward(zeros({5, kEmbd}));
            }),
            "HeadList: x must be (B, T, C), got shape [5, 6]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              p.split.forward(zeros({5, kEmbd}));
            }),
            "MultiHeadAttention: x must be (B, T, C), got shape [5, 6]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              p.split.forward_fused(zeros({5, kEmbd}));
            }),
            "MultiHeadAttention: x must be (B, T, C), got shape [5, 6]");
}

}  // namespace
}  // namespace chargrad
