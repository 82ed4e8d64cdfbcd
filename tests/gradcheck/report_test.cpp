#include "tests/gradcheck/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/ops.h"

namespace chargrad::tests {
namespace {

using testing::HasSubstr;

Tensor input(const std::vector<double>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

// x, with every gradient times `factor`.
Tensor skewed(const Tensor& x, double factor) {
  return record("skewed", clone(x.detach()), {x}, save(),
                [factor](const Tensor& dy, const Saved&) { return Grads{dy * factor}; });
}

Case skewed_case(double factor, const std::vector<std::string>& names = {}) {
  return {"skewed/case", [factor, names] {
            return Subject{[factor](const auto& in) { return skewed(in[1], factor) + in[0]; },
                           {input({1, 2}), input({3, 4})},
                           names};
          }};
}

TEST(Report, ARightCasePasses) {
  const Outcome outcome = run_case(skewed_case(1));
  EXPECT_EQ(outcome.name, "skewed/case");
  EXPECT_TRUE(outcome.passed);
  EXPECT_LT(outcome.max_rel_error, kMaxRelError);
  EXPECT_EQ(outcome.detail, "");
}

TEST(Report, TheRelativeErrorDecides) {
  // Well within PyTorch's tolerances, and not good enough here.
  EXPECT_FALSE(run_case(skewed_case(1 + 2e-6)).passed);
  EXPECT_TRUE(run_case(skewed_case(1 + 5e-7)).passed);
  const Outcome wrong = run_case(skewed_case(1.01));
  EXPECT_FALSE(wrong.passed);
  EXPECT_NEAR(wrong.max_rel_error, 0.01, 1e-6);
  EXPECT_GT(wrong.max_abs_error, 0.005);
}

TEST(Report, NamesTheWorstElement) {
  EXPECT_THAT(run_case(skewed_case(1.01)).detail, HasSubstr("input 1 at ["));
  EXPECT_THAT(run_case(skewed_case(1.01, {"a", "c_fc.weight"})).detail,
              testing::StartsWith("c_fc.weight at ["));
}

TEST(Report, AnExceptionIsAFailure) {
  const Outcome outcome = run_case(
      {"matmul/bad", [] {
         return Subject{[](const auto& in) { return view(in[0], {7}); }, {input({1, 2})}, {}};
       }});
  EXPECT_FALSE(outcome.passed);
  EXPECT_EQ(outcome.max_rel_error, std::numeric_limits<double>::infinity());
  EXPECT_THAT(outcome.detail, HasSubstr("view"));
}

TEST(Report, OneFailureIsAFailure) {
  EXPECT_TRUE(all_passed({}));
  EXPECT_TRUE(all_passed({run_case(skewed_case(1))}));
  EXPECT_FALSE(all_passed({run_case(skewed_case(1)), run_case(skewed_case(1.01))}));
}

TEST(Report, Lines) {
  EXPECT_EQ(heading(14), "case            max_rel_error  max_abs_error");
  EXPECT_EQ(line({"a/b", true, 1.26e-10, 3e-11, ""}, 14),
            "a/b                   1.3e-10        3.0e-11  ok");
  EXPECT_EQ(line({"softmax/dim_12", false, 0.01, 2, "input 0 at [1]: analytic 1, numeric 3"}, 14),
            "softmax/dim_12        1.0e-02        2.0e+00  FAIL  "
            "input 0 at [1]: analytic 1, numeric 3");
}

TEST(Report, Summary) {
  EXPECT_EQ(summary({}, 0), "0 cases, 0 failed, 0.0 s");
  EXPECT_EQ(summary({{"a/b", true, 2e-9, 1, ""}}, 0.25),
            "1 case, 0 failed, worst a/b 2.0e-09, "
            "0.2 s");
  EXPECT_EQ(
      summary({{"a/b", true, 2e-9, 1, ""}, {"c/d", false, 0.5, 1, ""}, {"e/f", true, 0, 0, ""}},
              61),
      "3 cases, 1 failed, worst c/d 5.0e-01, 61.0 s");
}

TEST(Report, Json) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string text =
      to_json({{"a/b", true, 1.25e-10, 0, ""}, {"c\"/d", false, infinity, infinity, "thrown"}});
  EXPECT_THAT(text, testing::StartsWith("[\n{\"case\":\"a/b\",\"passed\":true,"));
  const auto parsed = nlohmann::json::parse(text);
  ASSERT_EQ(parsed.size(), 2u);
  EXPECT_EQ(
      parsed[0],
      (nlohmann::json{
          {"case", "a/b"}, {"passed", true}, {"max_rel_error", 1.25e-10}, {"max_abs_error", 0.0}}));
  EXPECT_EQ(parsed[1], (nlohmann::json{{"case", "c\"/d"},
                                       {"passed", false},
                                       {"max_rel_error", 1e300},
                                       {"max_abs_error", 1e300}}));
  EXPECT_EQ(nlohmann::json::parse(to_json({})), nlohmann::json::array());
}

}  // namespace
}  // namespace chargrad::tests
