// Every printed number of the lessons, one test a lesson.
#include "tests/gradcheck/lesson.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad::tests {
namespace {

class Lessons : public testing::TestWithParam<std::string> {};

TEST_P(Lessons, NothingIsOff) {
  for (const Lesson& lesson : lessons()) {
    if (lesson.name == GetParam()) {
      LessonSheet sheet;
      lesson.fill(sheet);
      EXPECT_EQ(sheet.off(), 0u);
      EXPECT_FALSE(sheet.lines().empty());
      for (const std::string& text : sheet.lines()) {
        EXPECT_THAT(text, testing::Not(testing::EndsWith("OFF")));
      }
      return;
    }
  }
  FAIL() << "no lesson " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(All, Lessons,
                         testing::Values("average", "simplified", "v1", "v2", "thermostat",
                                         "self_attention", "failure_modes", "exercises", "head",
                                         "multi_head"),
                         [](const auto& lesson) { return lesson.param; });

TEST(LessonList, AllAreTested) {
  std::set<std::string> names;
  size_t compared = 0;
  for (const Lesson& lesson : lessons()) {
    EXPECT_TRUE(names.insert(lesson.name).second) << lesson.name << " twice";
    LessonSheet sheet;
    lesson.fill(sheet);
    compared += sheet.compared();
  }
  EXPECT_EQ(names.size(), 10u);
  EXPECT_GE(compared, 150u);
}

TEST(LessonSheet, OffByMoreThanAUnitOfTheLastDigit) {
  EXPECT_FALSE(is_off({"", "1.2544", 1.2544}));
  EXPECT_FALSE(is_off({"", "1.2544", 1.2545}));
  EXPECT_TRUE(is_off({"", "1.2544", 1.25451}));
  EXPECT_TRUE(is_off({"", "-0.0749", 0.0749}));
  EXPECT_FALSE(is_off({"", "7.02e-13", 7.03e-13}));
  EXPECT_TRUE(is_off({"", "7.02e-13", 7.04e-13}));
  EXPECT_TRUE(is_off({"", "7.02e-13", 0}));
  EXPECT_FALSE(is_off({"", "15", 15.03}));
  EXPECT_TRUE(is_off({"", "15", 16.5}));
  EXPECT_TRUE(is_off({"", "1.0", std::nan("")}));
  EXPECT_NEAR(units_off({"", "0.50", 0.53}), 3, 1e-9);
}

TEST(LessonSheet, CountsWhatIsOff) {
  LessonSheet sheet;
  sheet.note("a note");
  sheet.numbers("x", {"1.0", "2.0"}, tensor({1, 3}));
  sheet.claim("holds", true);
  sheet.claim("does not", false);
  EXPECT_EQ(sheet.compared(), 2u);
  EXPECT_EQ(sheet.off(), 2u);
  ASSERT_EQ(sheet.lines().size(), 5u);
  EXPECT_THAT(sheet.lines()[1], testing::MatchesRegex("  x\\[0\\] +1\\.0 +1 +\\+0\\.0e\\+00  ok"));
  EXPECT_THAT(sheet.lines()[2], testing::MatchesRegex("  x\\[1\\] +2\\.0 +3 +\\+1\\.0e\\+00  OFF"));
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              sheet.numbers("y", {"1"}, tensor({1, 2}));
            }),
            "lesson: y prints 1 numbers, got a tensor of shape [2]");
}

}  // namespace
}  // namespace chargrad::tests
