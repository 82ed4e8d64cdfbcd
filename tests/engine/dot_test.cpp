#include "engine/dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

TEST(ToDot, OpsLeavesAndShapes) {
  const Tensor x = ones({2, 3}).set_requires_grad(), w = ones({3, 4}).set_requires_grad();
  EXPECT_EQ(to_dot(softmax(matmul(x, w)), {{"x", x}}),
            "digraph {\n"
            "  op0 [label=\"matmul\\n[2, 4]\", shape=box];\n"
            "  leaf0 [label=\"x\\n[2, 3]\", shape=ellipse];\n"
            "  leaf0 -> op0;\n"
            "  leaf1 [label=\"[3, 4]\", shape=ellipse];\n"
            "  leaf1 -> op0;\n"
            "  op1 [label=\"softmax\\n[2, 4]\", shape=box];\n"
            "  op0 -> op1;\n"
            "}\n");
}

TEST(ToDot, SharedAndConstantInputs) {
  const Tensor a = ones({2}).set_requires_grad();
  const Tensor b = a + a;  // two arrows from one leaf
  EXPECT_EQ(to_dot(b * ones({2})),
            "digraph {\n"
            "  op0 [label=\"add\\n[2]\", shape=box];\n"
            "  leaf0 [label=\"[2]\", shape=ellipse];\n"
            "  leaf0 -> op0;\n"
            "  leaf0 -> op0;\n"
            "  op1 [label=\"mul\\n[2]\", shape=box];\n"
            "  op0 -> op1;\n"
            "}\n");
}

TEST(ToDot, LeafAndQuotedName) {
  const Tensor a = ones({2});
  EXPECT_EQ(to_dot(a, {{"a \"quoted\\ name", a}}),
            "digraph {\n"
            "  leaf0 [label=\"a \\\"quoted\\\\ name\\n[2]\", shape=ellipse];\n"
            "}\n");
}

TEST(ToDot, DeepGraphNeedsNoStack) {
  Tensor x = ones({1}).set_requires_grad();
  for (int i = 0; i < 100'000; ++i) {
    x = x + 1;
  }
  EXPECT_THAT(to_dot(x), testing::HasSubstr("op99998 -> op99999;"));
}

TEST(ToDot, Refuses) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { to_dot(Tensor()); }),
            "to_dot: the tensor is undefined");
  const Tensor y = sum(ones({2}).set_requires_grad());
  y.backward();
  EXPECT_EQ(error_text<std::invalid_argument>([&] { to_dot(y); }),
            "to_dot: backward freed the graph at op 'sum'; draw it before, or keep it with "
            "retain_graph");
}

}  // namespace
}  // namespace chargrad
