// The gradcheck program as a user calls it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/gradcheck/cases.h"

namespace chargrad::tests {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

struct Ended {
  int status = -1;
  std::string out;
  std::string err;
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder of this test's own, removed afterwards.
class GradcheckProgram : public testing::Test {
 protected:
  GradcheckProgram() {
    std::string name = (fs::temp_directory_path() / "gradcheck-XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~GradcheckProgram() override { fs::remove_all(folder); }

  Ended run(const std::string& arguments) const {
    const std::string out = (folder / "out").string(), err = (folder / "err").string();
    const std::string command =
        "'" CHARGRAD_GRADCHECK "' " + arguments + " >'" + out + "' 2>'" + err + "'";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
  }

  fs::path folder;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_F(GradcheckProgram, ALinePerCase) {
  const Ended r = run("log_softmax nn.ReLU/matrix");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");
  const std::vector<std::string> lines = lines_of(r.out);
  ASSERT_GE(lines.size(), 4u);
  EXPECT_THAT(lines[0], StartsWith("case "));
  for (size_t i = 1; i + 2 < lines.size(); ++i) {
    EXPECT_THAT(lines[i], StartsWith("log_softmax/"));
    EXPECT_THAT(lines[i], testing::EndsWith("  ok"));
  }
  EXPECT_THAT(lines[lines.size() - 2], StartsWith("nn.ReLU/matrix "));
  EXPECT_THAT(lines.back(), HasSubstr(" cases, 0 failed, worst "));
}

TEST_F(GradcheckProgram, JsonAloneOnStdout) {
  const Ended r = run("--json nn.Linear");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");
  const auto cases = nlohmann::json::parse(r.out);
  ASSERT_TRUE(cases.is_array());
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0]["case"], "nn.Linear/with_bias");
  for (const auto& c : cases) {
    EXPECT_EQ(c.size(), 4u);
    EXPECT_EQ(c["passed"], true);
    EXPECT_LE(c["max_rel_error"].get<double>(), 1e-6);
    EXPECT_GE(c["max_abs_error"].get<double>(), 0);
  }
}

TEST_F(GradcheckProgram, JsonInAFile) {
  const fs::path file = folder / "results.json";
  const Ended r = run("nn.GELU --json=" + file.string());
  EXPECT_EQ(r.status, 0);
  EXPECT_THAT(r.out, HasSubstr("2 cases, 0 failed"));
  EXPECT_EQ(nlohmann::json::parse(read(file)).size(), 2u);

  const Ended refused = run("nn.GELU --json=" + (folder / "no" / "file").string());
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err, "gradcheck: cannot write " + (folder / "no" / "file").string() +
                             ": No such file or directory\n");
}

TEST_F(GradcheckProgram, List) {
  const Ended all = run("--list");
  EXPECT_EQ(all.status, 0);
  const std::vector<std::string> names = lines_of(all.out);
  ASSERT_EQ(names.size(), all_cases().size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], all_cases()[i].name);
  }
  EXPECT_EQ(run("'nn.Lin*/with_bias' --list").out, "nn.Linear/with_bias\n");
}

TEST_F(GradcheckProgram, HelpAndVersion) {
  const Ended help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("PATTERN"));
  EXPECT_THAT(help.out, HasSubstr("--list"));
  EXPECT_THAT(help.out, HasSubstr("--json"));
  const Ended version = run("--version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, StartsWith("gradcheck (chargrad) "));
}

TEST_F(GradcheckProgram, UsageErrors) {
  const Ended pattern = run("sofmax");
  EXPECT_EQ(pattern.status, 2);
  EXPECT_EQ(pattern.out, "");
  EXPECT_EQ(pattern.err,
            "gradcheck: no case matches 'sofmax'; did you mean softmax? --list names the cases\n");
  const Ended flag = run("--lst");
  EXPECT_EQ(flag.status, 2);
  EXPECT_EQ(flag.err, "gradcheck: unknown flag --lst; did you mean --list?\n");
  EXPECT_EQ(run("--list=maybe").status, 2);
}

TEST_F(GradcheckProgram, OneLesson) {
  const Ended r = run("--lesson=v2");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, StartsWith("v2 -- SelfAttentionV2"));
  EXPECT_THAT(r.out, HasSubstr("-0.0749"));
  EXPECT_THAT(r.out, HasSubstr("3 numbers compared, 0 off\n"));
}

TEST_F(GradcheckProgram, ScalingInEveryForm) {
  const std::string small = "--scaling --max_dk=4 --samples=8 --keys=3 ";
  const fs::path json = folder / "rows.json", page = folder / "page.html";
  const Ended r = run(small + "--json=" + json.string() + " --html=" + page.string());
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, HasSubstr("586 times larger"));
  EXPECT_EQ(nlohmann::json::parse(read(json))["rows"].size(), 6u);
  EXPECT_THAT(read(page), StartsWith("<!DOCTYPE html>"));
  EXPECT_EQ(run(small + "--json").out, read(json));

  const Ended refused = run(small + "--html=" + (folder / "no" / "file").string());
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.out, "");
}

TEST_F(GradcheckProgram, WhatDoesNotGoTogether) {
  const auto error = [this](const std::string& arguments) {
    const Ended r = run(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    return r.err;
  };
  EXPECT_EQ(error("--lesson=heads"),
            "gradcheck: --lesson=heads is none of average, simplified, v1, v2, thermostat, "
            "self_attention, failure_modes, exercises, head, multi_head\n");
  const std::string excluded =
      "gradcheck: --lesson and --scaling exclude each other, a PATTERN and --list\n";
  EXPECT_EQ(error("softmax --lesson"), excluded);
  EXPECT_EQ(error("--scaling --list"), excluded);
  EXPECT_EQ(error("--scaling --lesson"), excluded);
  EXPECT_EQ(error("--max_dk=4"), "gradcheck: --max_dk needs --scaling\n");
  EXPECT_EQ(error("--html=a"), "gradcheck: --html needs --scaling\n");
  EXPECT_EQ(error("--lesson --json"), "gradcheck: --lesson writes no JSON\n");
  EXPECT_EQ(error("--list --json"), "gradcheck: --list writes no JSON\n");
  EXPECT_EQ(error("--scaling --json=a --html=a"),
            "gradcheck: --json and --html name the same file, a\n");
  for (const auto& [flag, range] :
       std::vector<std::pair<std::string, std::string>>{{"max_dk=0", "[1, 65536]"},
                                                        {"max_dk=65537", "[1, 65536]"},
                                                        {"samples=0", "[1, 1048576]"},
                                                        {"samples=1048577", "[1, 1048576]"},
                                                        {"keys=1", "[2, 1024]"},
                                                        {"keys=1025", "[2, 1024]"},
                                                        {"seed=-1", "[0, 4294967295]"},
                                                        {"seed=4294967296", "[0, 4294967295]"}}) {
    EXPECT_EQ(error("--scaling --" + flag),
              fmt::format("gradcheck: --{} is not a whole number in {}\n", flag, range));
  }
}

}  // namespace
}  // namespace chargrad::tests
