// The experiment with attention's scale, small, and what is said about it.
#include "tests/gradcheck/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/error_text.h"
#include "tests/gradcheck/scaling_report.h"

namespace chargrad::tests {
namespace {

using testing::HasSubstr;

const ScalingResult& small() {
  static const ScalingResult result = measure_scaling({/*max_dk=*/64, /*samples=*/100, 8, 5});
  return result;
}

TEST(Scaling, RowsInOrder) {
  ASSERT_EQ(small().rows.size(), 14u);
  for (size_t i = 0; i < small().rows.size(); ++i) {
    EXPECT_EQ(small().rows[i].d_k, int64_t{1} << (i / 2));
    EXPECT_EQ(small().rows[i].scaled, i % 2 == 1);
  }
}

TEST(Scaling, GradientsAreConfirmed) {
  for (const ScalingRow& row : small().rows) {
    EXPECT_LE(row.max_rel_error, kMaxScalingError) << row.d_k;
    // Not compared at all would give 0.
    EXPECT_GT(row.max_rel_error, 0) << row.d_k;
  }
  EXPECT_TRUE(small().confirmed());
}

TEST(Scaling, OneNumberNeedsNoScale) {
  const ScalingRow &raw = small().rows[0], &scaled = small().rows[1];
  EXPECT_EQ(raw.jacobian_norm.mean, scaled.jacobian_norm.mean);
  EXPECT_EQ(raw.query_grad_norm.median, scaled.query_grad_norm.median);
}

TEST(Scaling, ScoresAndEntropyAsTheoryHasThem) {
  for (const ScalingRow& row : small().rows) {
    // A score is a sum of d_k products of unit variance; 800 of them, 8 to a query.
    const double expected = row.scaled ? 1 : std::sqrt(static_cast<double>(row.d_k));
    EXPECT_NEAR(row.score_std / expected, 1, 0.25) << row.d_k;
    EXPECT_LE(row.entropy_mean, std::log(8));
    EXPECT_GT(row.max_weight_mean, 1.0 / 8);
    EXPECT_EQ(row.first_weights.size(), 8u);
    EXPECT_GE(row.first_weights[0], row.first_weights[7]);
  }
  const ScalingRow &raw = small().rows[12], &scaled = small().rows[13];
  EXPECT_GT(raw.max_weight_mean, scaled.max_weight_mean + 0.2);
  EXPECT_LT(raw.jacobian_norm.median, 0.5 * scaled.jacobian_norm.median);
  EXPECT_LT(raw.entropy_mean, 0.5 * scaled.entropy_mean);
  EXPECT_GT(raw.dead_share, 0.1);
  EXPECT_EQ(scaled.dead_share, 0);
}

TEST(Scaling, LessonsPair) {
  EXPECT_NEAR(small().raw.weights[0], 0.9997, 1e-4);
  EXPECT_NEAR(small().raw.derivative, 3.352e-4, 1e-7);
  EXPECT_NEAR(small().scaled.derivative, 0.19661, 1e-5);
  EXPECT_NEAR(small().ratio(), 586, 1);
  EXPECT_LE(small().raw.rel_error, kMaxScalingError);
  EXPECT_LE(small().scaled.rel_error, kMaxScalingError);
}

TEST(Scaling, SameSeedSameNumbers) {
  const ScalingOptions options{4, 10, 3, 9};
  EXPECT_EQ(scaling_json(measure_scaling(options)), scaling_json(measure_scaling(options)));
  EXPECT_NE(scaling_json(measure_scaling(options)), scaling_json(measure_scaling({4, 10, 3, 8})));
}

TEST(Scaling, AWrongGradientIsNotConfirmed) {
  ScalingResult result = small();
  result.rows[3].max_rel_error = 1e-2;
  EXPECT_FALSE(result.confirmed());
  EXPECT_THAT(scaling_text(result), HasSubstr("NOT CONFIRMED"));
  result.rows[3].max_rel_error = std::nan("");
  EXPECT_FALSE(result.confirmed());
}

TEST(Scaling, Text) {
  const std::string text = scaling_text(small());
  EXPECT_THAT(text, HasSubstr("100 queries a row, 8 keys each, unit variance, seed 5"));
  EXPECT_THAT(text, HasSubstr("carries the factor 1/sqrt(d_k) itself"));
  EXPECT_THAT(text, HasSubstr("derivative of the first weight 3.352e-04, by"));
  EXPECT_THAT(text, HasSubstr("derivative of the first weight 0.19661, by"));
  EXPECT_THAT(text, HasSubstr("The derivative is 586 times larger with the scale. Both confirmed"));
}

TEST(Scaling, Json) {
  const auto object = nlohmann::json::parse(scaling_json(small()));
  ASSERT_EQ(object["rows"].size(), 14u);
  const auto& row = object["rows"][13];
  EXPECT_EQ(row["d_k"], 64);
  EXPECT_EQ(row["scaled"], true);
  for (const char* key :
       {"score_std", "max_weight_mean", "entropy_mean", "jacobian_norm_mean",
        "jacobian_norm_median", "score_grad_norm_mean", "score_grad_norm_median",
        "query_grad_norm_mean", "key_grad_norm_median", "dead_share", "max_rel_error"}) {
    EXPECT_TRUE(row[key].is_number()) << key;
  }
}

TEST(Scaling, PageIsWholeAndNeedsNoNetwork) {
  const std::string page = scaling_page(small());
  EXPECT_THAT(page, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  EXPECT_THAT(page, testing::Not(HasSubstr("http")));
  EXPECT_THAT(page, testing::Not(HasSubstr("nan")));
  size_t charts = 0;
  for (size_t at = page.find("<svg "); at != std::string::npos; at = page.find("<svg ", at + 1)) {
    ++charts;
  }
  EXPECT_EQ(charts, 8u);
}

TEST(Scaling, RefusesNothingToMeasure) {
  EXPECT_EQ(error_text<std::invalid_argument>([] {
              measure_scaling({0, 1, 1, 1});
            }),
            "scaling: max_dk, samples and keys must be positive, got 0, 1 and 1");
}

}  // namespace
}  // namespace chargrad::tests
