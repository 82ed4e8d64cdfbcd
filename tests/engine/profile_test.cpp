#include "engine/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/ops.h"

namespace chargrad::profile {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const Profiler& profiler) {
  std::vector<std::string> result;
  for (const Row& row : profiler.rows()) {
    if (!row.op.empty()) {
      result.push_back(row.scope + ":" + row.op + (row.is_backward ? "'" : ""));
    }
  }
  return result;
}

const Totals& totals(const std::vector<Row>& rows, const std::string& op, bool is_backward) {
  static const Totals none;
  for (const Row& row : rows) {
    if (row.op == op && row.is_backward == is_backward) {
      return row.totals;
    }
  }
  ADD_FAILURE() << "no row " << op;
  return none;
}

TEST(Profile, OpsBelongToTheirScopesAndBackwardToThatOfItsForward) {
  Profiler profiler;
  {
    const Recording recording(&profiler);
    const Tensor x = ones({3, 4}).set_requires_grad();
    Tensor y;
    {
      const Scope outer("outer");
      y = exp(x);
      const Scope inner("inner");
      y = sum(tanh(y));
    }
    const Scope backward("backward");
    y.backward();
  }
  EXPECT_THAT(labels(profiler), ElementsAre("inner:sum", "inner:sum'", "inner:tanh", "inner:tanh'",
                                            "outer:exp", "outer:exp'"));
}

TEST(Profile, RowsAddUpToTheRecordedTime) {
  Profiler profiler({}, 1000);
  const Tensor x = ones({20, 20}).set_requires_grad();
  for (int i = 0; i < 3; ++i) {
    const Recording recording(&profiler);
    const Scope scope("scope");
    sum(matmul(gelu(x), x)).backward();
  }
  int64_t rows = 0, spans = 0;
  for (const Row& row : profiler.rows()) {
    EXPECT_GE(row.totals.nanoseconds, 0);
    rows += row.totals.nanoseconds;
  }
  EXPECT_EQ(rows, profiler.nanoseconds());
  EXPECT_GT(rows, 0);
  for (const Span& span : profiler.spans()) {
    spans += span.is_scope ? 0 : span.end - span.begin;
  }
  EXPECT_LE(spans, rows);
  EXPECT_EQ(totals(profiler.rows(), "gelu", true).calls, 3);
}

TEST(Profile, SpansNest) {
  Profiler profiler({}, 1000);
  {
    const Recording recording(&profiler);
    const Scope outer("outer");
    exp(ones({4}));
    {
      const Scope inner("inner");
      exp(ones({4}));
    }
    exp(ones({4}));
  }
  std::vector<std::string> names;
  for (const Span& span : profiler.spans()) {
    names.push_back(std::string(span.scope) + "/" + std::string(span.name));
    EXPECT_LE(span.begin, span.end);
  }
  EXPECT_THAT(names, ElementsAre("outer/exp", "inner/exp", "outer/inner", "outer/exp", "/outer"));
  const std::vector<Span>& s = profiler.spans();
  EXPECT_LE(s[2].begin, s[1].begin);
  EXPECT_LE(s[1].end, s[2].end);
  EXPECT_LE(s[0].end, s[2].begin);
  EXPECT_LE(s[2].end, s[3].begin);
  EXPECT_LE(s[4].begin, s[0].begin);
  EXPECT_LE(s[3].end, s[4].end);
}

TEST(Profile, CountsTheWorkOfProductsAndTheBytes) {
  Profiler profiler;
  const Tensor a = ones({2, 3, 5}).set_requires_grad(), b = ones({5, 7}).set_requires_grad();
  const Tensor w = ones({7, 5}).set_requires_grad();
  const Tensor q = ones({2, 3, 4, 5}).set_requires_grad(), v = ones({2, 3, 4, 6});
  {
    const Recording recording(&profiler);
    sum(matmul(a, b)).backward();
    sum(linear(a.detach(), w)).backward();
    sum(scaled_dot_product_attention(q, q, v)).backward();
  }
  const std::vector<Row> rows = profiler.rows();
  EXPECT_EQ(totals(rows, "matmul", false).flops, 2 * 6 * 7 * 5);
  EXPECT_EQ(totals(rows, "matmul", true).flops, 2 * 2 * 6 * 7 * 5);
  EXPECT_EQ(totals(rows, "linear", false).flops, 2 * 6 * 7 * 5);
  EXPECT_EQ(totals(rows, "linear", true).flops, 2 * 6 * 7 * 5);  // of the weight alone
  const double attention = 2.0 * 6 * 4 * 4 * (5 + 6);
  EXPECT_EQ(totals(rows, "scaled_dot_product_attention", false).flops, attention);
  EXPECT_EQ(totals(rows, "scaled_dot_product_attention", true).flops, 2 * attention);
  EXPECT_EQ(totals(rows, "sum", false).flops, 0);
  EXPECT_GE(totals(rows, "linear", false).bytes, 4 * 6 * 7);
}

// All of its parts are its own: what it takes from views of the weight costs nothing.
TEST(Profile, ChargesGeluLinearForAllItsParts) {
  const RecomputeGuard row_by_row(0);
  Profiler profiler;
  const Tensor x = ones({6, 8}).set_requires_grad(), w = ones({4, 8}).set_requires_grad();
  {
    const Recording recording(&profiler);
    sum(gelu_linear(x, w)).backward();
  }
  const std::vector<Row> rows = profiler.rows();
  const Totals forward = totals(rows, "gelu_linear", false);
  EXPECT_EQ(forward.bytes, int64_t{4} * (6 * 4 + 8));  // the result, and memory for a row
  EXPECT_EQ(forward.flops, 2 * 6 * 4 * 8);
  EXPECT_EQ(totals(rows, "gelu_linear", true).flops, 2 * 2 * 6 * 4 * 8);
  EXPECT_EQ(totals(rows, "transpose", false).bytes, 0);
  EXPECT_EQ(totals(rows, "transpose", false).calls, 1);
}

TEST(Profile, KnowsObjectsByTheNamesItWasGiven) {
  const int named = 0, other = 0;
  Profiler profiler({{&named, "named"}});
  {
    const Recording recording(&profiler);
    const Scope scope("outside");
    for (const int* object : {&named, &other}) {
      const Scope inner(Object{object});
      exp(ones({1}));
    }
  }
  EXPECT_THAT(labels(profiler), ElementsAre("named:exp", "outside:exp"));
}

TEST(Profile, KeepsNoMoreSpansThanAllowed) {
  Profiler profiler({}, 2);
  {
    const Recording recording(&profiler);
    for (int i = 0; i < 5; ++i) {
      exp(ones({1}));
    }
  }
  EXPECT_EQ(profiler.spans().size(), 2u);
  EXPECT_EQ(totals(profiler.rows(), "exp", false).calls, 5);
}

TEST(Profile, IsOffWithoutARecordingAndOnOtherThreads) {
  Profiler profiler;
  exp(ones({1}));
  {
    const Recording recording(&profiler);
    const Recording off(nullptr);
    const Scope scope("nothing");
    exp(ones({1}));
  }
  EXPECT_TRUE(labels(profiler).empty());
  {
    const Recording recording(&profiler);
    std::thread([] { exp(ones({1})); }).join();
  }
  EXPECT_TRUE(labels(profiler).empty());
  EXPECT_EQ(current, nullptr);
}

}  // namespace
}  // namespace chargrad::profile
