#include "tests/gradcheck/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chargrad::tests {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Case> named(const std::vector<std::string>& names) {
  std::vector<Case> cases;
  cases.reserve(names.size());
  for (const std::string& name : names) {
    cases.push_back({name, nullptr});
  }
  return cases;
}

std::vector<std::string> picked(const std::vector<std::string>& patterns) {
  static const std::vector<Case> cases =
      named({"softmax/last_dim", "softmax/dim_0", "log_softmax/last_dim", "nn.Linear/with_bias",
             "nn.LayerNorm/with_bias", "gpt/two_layers", "gpt/two_layers_bias"});
  std::vector<std::string> names;
  for (const Case& c : select_cases(cases, patterns)) {
    names.push_back(c.name);
  }
  return names;
}

std::string failure(const std::vector<std::string>& patterns) {
  try {
    picked(patterns);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Select, AllWithoutAPattern) {
  EXPECT_EQ(picked({}).size(), 7u);
  EXPECT_EQ(picked({"*"}).size(), 7u);
}

TEST(Select, ASubjectLeavesLongerOnesAlone) {
  EXPECT_THAT(picked({"softmax"}), ElementsAre("softmax/last_dim", "softmax/dim_0"));
  EXPECT_THAT(picked({"log_softmax"}), ElementsAre("log_softmax/last_dim"));
}

TEST(Select, AWholeNameLeavesLongerOnesAlone) {
  EXPECT_THAT(picked({"gpt/two_layers"}), ElementsAre("gpt/two_layers"));
}

TEST(Select, APartOfANameWhereNothingElseFits) {
  EXPECT_THAT(picked({"soft"}),
              ElementsAre("softmax/last_dim", "softmax/dim_0", "log_softmax/last_dim"));
  EXPECT_THAT(picked({"nn."}), ElementsAre("nn.Linear/with_bias", "nn.LayerNorm/with_bias"));
}

TEST(Select, StarsAndQuestionMarksFitWholeNames) {
  EXPECT_THAT(picked({"*softmax/last_dim"}),
              ElementsAre("softmax/last_dim", "log_softmax/last_dim"));
  EXPECT_THAT(picked({"nn.L*r/with*"}), ElementsAre("nn.Linear/with_bias"));
  EXPECT_THAT(picked({"nn.L*/**s"}), ElementsAre("nn.Linear/with_bias", "nn.LayerNorm/with_bias"));
  EXPECT_THAT(picked({"softmax/dim_?"}), ElementsAre("softmax/dim_0"));
  EXPECT_THAT(failure({"softmax*_"}), testing::HasSubstr("no case matches"));
  EXPECT_THAT(failure({"softmax/dim_0?"}), testing::HasSubstr("no case matches"));
}

TEST(Select, SeveralPatternsKeepTheOrderOfTheCases) {
  EXPECT_THAT(picked({"gpt/*_bias", "softmax/dim_0", "dim_0"}),
              ElementsAre("softmax/dim_0", "gpt/two_layers_bias"));
}

TEST(Select, RefusesAPatternThatPicksNothing) {
  EXPECT_EQ(failure({"gpt", "sofmax"}),
            "gradcheck: no case matches 'sofmax'; did you mean softmax? --list names the cases");
  EXPECT_EQ(failure({"nn.Linar/with"}),
            "gradcheck: no case matches 'nn.Linar/with'; did you mean nn.Linear? "
            "--list names the cases");
  EXPECT_EQ(failure({""}), "gradcheck: no case matches ''; --list names the cases");
  EXPECT_EQ(failure({"["}), "gradcheck: no case matches '['; --list names the cases");
  EXPECT_THAT(select_cases({}, {}), IsEmpty());
}

}  // namespace
}  // namespace chargrad::tests
