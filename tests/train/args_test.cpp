#include "train/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

namespace chargrad::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Values {
  int64_t batch_size = 12;
  int64_t seed = 1337;
  double learning_rate = 1e-3;
  bool bias = false;
  bool resume = false;
  std::string prompt;
  std::optional<std::string> json;
};

SettingList list_of(Values& values) {
  SettingList list;
  list.group("Numbers");
  list.whole("batch_size", values.batch_size, {1, 1048576}, "windows", "Size of a micro-step");
  list.whole("seed", values.seed, {-10, 1 << 20}, "", "Start of the random numbers");
  list.real("learning_rate", values.learning_rate, {0.0, 1.0}, "", "Step size");
  list.boolean("bias", values.bias, "Biases");
  list.group("Other");
  list.toggle("resume", values.resume, "Go on");
  list.text("prompt", values.prompt, "TEXT", "Beginning").empty_allowed();
  list.optional_text("json", values.json, "FILE", "Machine-readable output");
  return list;
}

const Program kTrain{"train", "Trains.", "--data=FILE [flags]"};
const Program kGradcheck{"gradcheck", "Checks.", "[PATTERN...]", /*takes_words=*/true};

Arguments parse(const Program& program, const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"program"};
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  Values values;
  return parse_arguments(program, list_of(values), static_cast<int>(argv.size()), argv.data());
}

Values apply(const Program& program, const std::vector<std::string>& words) {
  Values values;
  apply_arguments(program, list_of(values), parse(program, words));
  return values;
}

std::string error_of(const Program& program, const std::vector<std::string>& words) {
  try {
    apply(program, words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Args, BothSpellingsAndBothForms) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--batch_size=3"}, {"--batch-size=3"}, {"--batch_size", "3"}, {"--batch-size", "3"}}) {
    EXPECT_EQ(apply(kTrain, words).batch_size, 3) << words[0];
  }
}

TEST(Args, TakesValues) {
  EXPECT_EQ(apply(kTrain, {"--learning_rate", "1"}).learning_rate, 1.0);
  EXPECT_EQ(apply(kTrain, {"--seed", "-1"}).seed, -1);
  EXPECT_EQ(apply(kTrain, {"--seed=-1"}).seed, -1);
  EXPECT_FALSE(apply(kTrain, {"--bias", "false"}).bias);
  EXPECT_FALSE(apply(kTrain, {"--bias=0"}).bias);
  EXPECT_TRUE(apply(kTrain, {"--bias", "True"}).bias);
  EXPECT_EQ(apply(kTrain, {"--prompt="}).prompt, "");
  EXPECT_EQ(apply(kTrain, {"--prompt", ""}).prompt, "");
  EXPECT_EQ(apply(kTrain, {"--prompt=a=b --c"}).prompt, "a=b --c");
  EXPECT_EQ(apply(kTrain, {"--prompt", "-x y"}).prompt, "-x y");
  EXPECT_EQ(apply(kTrain, {"--prompt=--seed-x"}).prompt, "--seed-x");
  EXPECT_EQ(apply(kTrain, {"--prompt", "a,b\nc"}).prompt, "a,b\nc");
}

TEST(Args, TakesLongValuesAndLineBreaks) {
  // The longest that Linux hands over in one word.
  const std::string longest = std::string(131000, 'x') + "\n";
  EXPECT_EQ(apply(kTrain, {"--prompt=" + longest}).prompt, longest);
  EXPECT_EQ(apply(kTrain, {"--prompt", longest}).prompt, longest);
  EXPECT_EQ(apply(kTrain, {"--json=" + longest}).json, longest);
}

TEST(Args, OptionalValuesNeedAnEqualsSign) {
  EXPECT_TRUE(apply(kTrain, {"--resume"}).resume);
  EXPECT_TRUE(apply(kTrain, {"--resume=1"}).resume);
  EXPECT_FALSE(apply(kTrain, {"--resume=False"}).resume);
  EXPECT_TRUE(apply(kTrain, {"--resume", "--seed=1"}).resume);
  EXPECT_EQ(apply(kTrain, {}).json, std::nullopt);
  EXPECT_EQ(apply(kTrain, {"--json"}).json, "");
  EXPECT_EQ(apply(kTrain, {"--json=a.json"}).json, "a.json");
  EXPECT_EQ(error_of(kTrain, {"--resume", "true"}),
            "train: --resume takes a value only with =: --resume=true");
}

TEST(Args, TheLastOfSeveralHolds) {
  EXPECT_EQ(apply(kTrain, {"--seed=1", "--batch_size=2", "--seed=3"}).seed, 3);
  EXPECT_EQ(error_of(kTrain, {"--seed=x", "--seed=3"}),
            "train: --seed=x is not a whole number in [-10, 1048576]");
}

TEST(Args, NamesFlagValueAndRange) {
  EXPECT_EQ(error_of(kTrain, {"--batch-size=2.5"}),
            "train: --batch_size=2.5 is not a whole number in [1, 1048576]");
  EXPECT_EQ(error_of(kTrain, {"--batch_size", "-1"}),
            "train: --batch_size=-1 is not a whole number in [1, 1048576]");
  EXPECT_EQ(error_of(kTrain, {"--learning_rate", "1e-3abc"}),
            "train: --learning_rate=1e-3abc is not a number in [0, 1]");
  EXPECT_EQ(error_of(kTrain, {"--bias=maybe"}), "train: --bias=maybe is not true, false, 1 or 0");
  EXPECT_EQ(error_of(kTrain, {"--bias", "maybe"}),
            "train: --bias=maybe is not true, false, 1 or 0");
  EXPECT_EQ(error_of(kTrain, {"--batch_size=1\n2"}),
            "train: --batch_size=1\\x0a2 is not a whole number in [1, 1048576]");
}

TEST(Args, RefusesUnknownFlags) {
  EXPECT_EQ(error_of(kTrain, {"--batch-sizes=3"}),
            "train: unknown flag --batch-sizes; did you mean --batch_size?");
  EXPECT_EQ(error_of(kTrain, {"--lr", "1"}),
            "train: unknown flag --lr; did you mean --learning_rate?");
  EXPECT_EQ(error_of(kTrain, {"--unknown", "3"}),
            "train: unknown flag --unknown; train --help lists the flags");
  EXPECT_EQ(error_of(kTrain, {"-seed=3"}), "train: unknown flag -seed; did you mean --seed?");
  EXPECT_EQ(error_of(kTrain, {"-s"}), "train: unknown flag -s; train --help lists the flags");
  EXPECT_EQ(error_of(kTrain, {"---seed=3"}), "train: unknown flag ---seed; did you mean --seed?");
  EXPECT_EQ(error_of(kTrain, {"--=3"}), "train: unknown flag --; train --help lists the flags");
  EXPECT_EQ(error_of(kTrain, {"--seed.x=3"}), "train: unknown flag --seed.x; did you mean --seed?");
}

TEST(Args, RefusesMissingValues) {
  EXPECT_EQ(error_of(kTrain, {"--prompt"}), "train: --prompt needs a value: --prompt=TEXT");
  EXPECT_EQ(error_of(kTrain, {"--bias", "--resume"}),
            "train: --bias needs a value, got --resume; write --bias=--resume if that is it");
}

TEST(Args, Words) {
  EXPECT_EQ(error_of(kTrain, {"my.txt"}),
            "train: unexpected word my.txt; flags begin with --, as in --seed=1");
  EXPECT_EQ(error_of(kTrain, {""}),
            "train: unexpected word ''; flags begin with --, as in --seed=1");
  EXPECT_EQ(error_of(kTrain, {"--", "--seed"}),
            "train: unexpected word --seed; flags begin with --, as in --seed=1");
  EXPECT_EQ(error_of(kGradcheck, {"--json="}),
            "gradcheck: --json= gives no FILE; --json alone or --json=FILE");
  const Arguments arguments =
      parse(kGradcheck, {"softmax", "--json", "gelu", "--seed", "3", "--", "--x"});
  EXPECT_THAT(arguments.words, ElementsAre("softmax", "gelu", "--x"));
  ASSERT_EQ(arguments.flags.size(), 2U);
  EXPECT_EQ(arguments.flags[0].name, "json");
  EXPECT_EQ(arguments.flags[0].value, "");
  EXPECT_EQ(arguments.flags[1].name, "seed");
  EXPECT_EQ(arguments.flags[1].value, "3");
  EXPECT_THAT(parse(kTrain, {}).flags, IsEmpty());
  Values values;
  EXPECT_THAT(parse_arguments(kTrain, list_of(values), 0, nullptr).flags, IsEmpty());
}

TEST(Args, HelpComesBeforeEverythingElse) {
  EXPECT_TRUE(parse(kTrain, {"--nonsense", "--help"}).help);
  EXPECT_TRUE(parse(kTrain, {"-h"}).help);
  EXPECT_FALSE(parse(kTrain, {"--seed=1"}).help);
  EXPECT_TRUE(parse(kTrain, {"--version"}).version);
  EXPECT_FALSE(parse(kGradcheck, {"--", "--help"}).help);
  EXPECT_EQ(error_of(kTrain, {"--help=3"}), "train: --help takes no value");
  EXPECT_EQ(error_of(kTrain, {"-h=3"}), "train: -h takes no value");
  EXPECT_EQ(error_of(kTrain, {"--version="}), "train: --version takes no value");
}

TEST(Args, HelpShowsGroupsUnitsAndDefaults) {
  Values values;
  values.batch_size = 34;
  const std::string help = help_text(kTrain, list_of(values));
  EXPECT_THAT(help, HasSubstr("Trains.\n\nUsage:\n  train --data=FILE [flags]\n"));
  EXPECT_THAT(help, HasSubstr(" Numbers options:\n      --batch_size N"));
  EXPECT_THAT(help, HasSubstr("Size of a micro-step (windows; default: 34)\n"));
  EXPECT_THAT(help, HasSubstr("--bias true|false"));
  EXPECT_THAT(help, HasSubstr("Biases (default: false)\n"));
  EXPECT_THAT(help, HasSubstr(" Other options:\n"));
  EXPECT_THAT(help, HasSubstr("-h, --help"));
  EXPECT_LT(help.find("Numbers options"), help.find("Other options"));
  EXPECT_LT(help.find("Other options"), help.find("Help options"));
}

TEST(Args, VersionNamesProgramAndProject) {
  EXPECT_THAT(version_text(kTrain), ::testing::MatchesRegex("train \\(chargrad\\) [0-9.]+"));
}

TEST(Args, RunProgramTurnsErrorsIntoALineAndAStatus) {
  const auto run = [](const std::function<int()>& body) {
    ::testing::internal::CaptureStderr();
    const int status = run_program(kTrain, body);
    return std::to_string(status) + " " + ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(run([] { return 0; }), "0 ");
  EXPECT_EQ(run([] { return 130; }), "130 ");
  EXPECT_EQ(run([]() -> int { throw UsageError("train: --x is wrong"); }),
            "2 train: --x is wrong\n");
  EXPECT_EQ(run([]() -> int { throw std::runtime_error("data: cannot open a.txt"); }),
            "1 train: data: cannot open a.txt\n");
  EXPECT_EQ(run([]() -> int { throw std::invalid_argument("softmax: dim 3"); }),
            "1 train: softmax: dim 3\n");
  EXPECT_EQ(run([]() -> int { throw std::bad_alloc(); }), "1 train: out of memory\n");
  EXPECT_EQ(run([]() -> int { throw std::invalid_argument("CPU=a\n\xff"); }),
            "1 train: CPU=a\\x0a\\xff\n");
}

}  // namespace
}  // namespace chargrad::train
