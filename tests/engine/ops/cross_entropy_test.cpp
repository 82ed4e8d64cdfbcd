#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

Tensor ids(const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())});
}

TEST(CrossEntropy, Extremes) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor logits = tensor({{1000, 0}}, dtype);
    EXPECT_EQ(cross_entropy(logits, ids({0})).item(), 0);
    EXPECT_EQ(cross_entropy(logits, ids({1})).item(), 1000);
    const auto to_class = [](int64_t target) {
      return [target](const Tensor& x) { return cross_entropy(x, ids({target})); };
    };
    EXPECT_THAT(values(gradient(to_class(0), logits, {})), ElementsAre(0, 0));
    EXPECT_THAT(values(gradient(to_class(1), logits, {})), ElementsAre(1, -1));
  }
}

// Uniform logits cost log V whatever the target.
TEST(CrossEntropy, UniformLogits) {
  const Tensor loss = cross_entropy(zeros({2, 3, 65}), zeros({2, 3}, kInt64));
  EXPECT_EQ(loss.shape(), Shape{});
  EXPECT_NEAR(loss.item(), std::log(65.0), 1e-6);
}

TEST(CrossEntropy, AgreesWithItsTwin) {
  const Tensor x = tensor({{1, -2, 0.5}, {3, 3, -1}, {0, 0, 2}, {1, 1, 1}}, kFloat64);
  const Tensor target = ids({2, 0, -1, 1});
  const auto fused = [&](const Tensor& in) { return cross_entropy(in, target, -1); };
  const auto twin = [](const Tensor& in) {
    const Tensor picked = gather(log_softmax(in), 1, ids({2, 0, 0, 1}).view({4, 1}));
    return neg(sum(picked * tensor({1, 1, 0, 1}, kFloat64).view({4, 1}))) / 3.0;
  };
  EXPECT_NEAR(fused(x).item(), twin(x).item(), 1e-15);
  const Tensor dy = scalar(0.7, kFloat64);
  EXPECT_THAT(values(gradient(fused, x, dy)), near(values(gradient(twin, x, dy)), 1e-15));
}

TEST(CrossEntropy, LeadingDimsCountAsRows) {
  const Tensor x = tensor({1, -2, 0.5, 3, 3, -1, 0, 0, 2, 1, 1, 1}).view({2, 2, 3});
  const Tensor target = ids({2, 0, 1, 1});
  EXPECT_EQ(cross_entropy(x, target.view({2, 2})).item(),
            cross_entropy(x.view({4, 3}), target).item());
  EXPECT_EQ(cross_entropy(x.select(0, 0).select(0, 0), scalar(2, kInt64)).item(),
            cross_entropy(x.view({4, 3}), ids({2, -100, -100, -100})).item());
}

TEST(CrossEntropy, StridedLogitsAndTargets) {
  const Tensor x = tensor({{1, 3}, {-2, 3}, {0.5, -1}}).transpose(0, 1);  // (2, 3)
  const Tensor target = from_vector<int64_t>({2, 9, 0, 9}, {2, 2}).select(1, 0);
  const auto loss = [&](const Tensor& in) { return cross_entropy(in, target); };
  EXPECT_EQ(loss(x).item(), cross_entropy(x.contiguous(), ids({2, 0})).item());
  EXPECT_EQ(values(gradient(loss, x, {})), values(gradient(loss, x.contiguous(), {})));
}

TEST(CrossEntropy, IgnoredRowsDoNotCount) {
  const Tensor x = tensor({{1, 2}, {30, 4}, {5, 5}});
  const auto loss = [](const Tensor& in) { return cross_entropy(in, ids({0, -100, 1})); };
  EXPECT_NEAR(loss(x).item(), (std::log1p(std::exp(1.0)) + std::log(2.0)) / 2, 1e-6);
  // Half of softmax - onehot in the two rows that count: sigmoid(1) = 0.7310586.
  EXPECT_THAT(values(gradient(loss, x, {})),
              near({-0.3655293, 0.3655293, 0, 0, 0.25, -0.25}, 1e-7));
  // A class may be ignored too.
  EXPECT_EQ(cross_entropy(x, ids({0, 1, 1}), 1).item(), cross_entropy(x, ids({0, 7, 7}), 7).item());
}

TEST(CrossEntropy, AllIgnoredIsNaNWithZeroGradient) {
  const auto loss = [](const Tensor& in) { return cross_entropy(in, ids({-100, -100})); };
  const Tensor x = tensor({{1, 2}, {3, 4}});
  EXPECT_TRUE(std::isnan(loss(x).item()));
  EXPECT_THAT(values(gradient(loss, x, {})), ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(std::isnan(cross_entropy(zeros({0, 3}), ids({})).item()));
}

TEST(CrossEntropy, BFloat16LogitsGiveAFloat32Loss) {
  const Tensor x = tensor({{1.5, 0.25}}, kBFloat16);
  const Tensor loss = cross_entropy(x, ids({1}));
  EXPECT_EQ(loss.dtype(), kFloat32);
  EXPECT_EQ(loss.item(), cross_entropy(x.to(kFloat32), ids({1})).item());
  const auto f = [](const Tensor& in) { return cross_entropy(in, ids({1})); };
  EXPECT_EQ(gradient(f, x, {}).dtype(), kBFloat16);
}

TEST(CrossEntropy, Errors) {
  EXPECT_THAT(
      [] {
        cross_entropy(zeros({2, 65}), ids({3, 65}));
      },
      throws("cross_entropy: target 65 at position 1 is outside [0, 65)"));
  EXPECT_THAT(
      [] {
        cross_entropy(zeros({1, 65}), ids({-1}));
      },
      throws("cross_entropy: target -1 at position 0 is outside [0, 65)"));
  EXPECT_THAT(
      [] {
        cross_entropy(zeros({2, 3, 65}), zeros({2, 4}, kInt64));
      },
      throws("cross_entropy: target must have the shape of logits without the last dim, "
             "got logits [2, 3, 65] and target [2, 4]"));
  EXPECT_THAT([] { cross_entropy(scalar(1), scalar(0, kInt64)); },
              throws("cross_entropy: target must have the shape of logits without the last dim, "
                     "got logits [] and target []"));
  EXPECT_THAT(
      [] {
        cross_entropy(zeros({2, 3}, kInt64), ids({0, 0}));
      },
      throws("cross_entropy: logits must be floating, got int64"));
  EXPECT_THAT(
      [] {
        cross_entropy(zeros({2, 3}), zeros({2}));
      },
      throws("cross_entropy: target must be int64, got float32"));
}

}  // namespace
}  // namespace chargrad::tests
