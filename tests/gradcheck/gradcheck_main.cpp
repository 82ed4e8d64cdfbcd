// gradcheck: the gradients of every op and every module against finite differences.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "tests/gradcheck/report.h"
#include "tests/gradcheck/select.h"
#include "train/args.h"

namespace {

using namespace chargrad::tests;
using chargrad::train::UsageError;

const chargrad::train::Program kProgram = {
    "gradcheck",
    "Checks the gradients of every op, every module and whole GPTs against central differences in "
    "double. A case fails above a relative error of 1e-6, and any failure gives the exit status 1.",
    "[PATTERN...] [flags]\n\n"
    "A PATTERN is what stands before the slash of a name (softmax), a whole name\n"
    "(softmax/last_dim), a part of names (_softmax), or a text with * and ? (nn.*/with_bias).",
    /*takes_words=*/true};

struct Options {
  bool list = false;
  std::optional<std::string> json;  // an empty text: to stdout
};

chargrad::train::SettingList setting_list(Options& options) {
  chargrad::train::SettingList list;
  list.group("Output");
  list.toggle("list", options.list, "Print the names of the cases and stop");
  list.optional_text("json", options.json, "FILE",
                     "Print the results as one JSON array and nothing else; with =FILE, write it "
                     "there and print the lines too");
  return list;
}

std::vector<Case> cases_of(const std::vector<std::string>& patterns) {
  try {
    return select_cases(all_cases(), patterns);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

size_t width_of(const std::vector<Case>& cases) {
  size_t width = 0;
  for (const Case& c : cases) {
    width = std::max(width, c.name.size());
  }
  return width;
}

// Runs the cases, one line each as they end unless `quiet`.
std::vector<Outcome> run(const std::vector<Case>& cases, bool quiet) {
  const auto start = std::chrono::steady_clock::now();
  const size_t width = width_of(cases);
  if (!quiet) {
    fmt::print("{}\n", heading(width));
  }
  std::vector<Outcome> outcomes;
  for (const Case& c : cases) {
    outcomes.push_back(run_case(c));
    if (!quiet) {
      fmt::print("{}\n", line(outcomes.back(), width));
      std::fflush(stdout);
    }
  }
  if (!quiet) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("{}\n", summary(outcomes, seconds.count()));
  }
  return outcomes;
}

// The file is opened before the cases run: a path that cannot be written fails at once.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path) : path_(path), file_(path) { check(); }

  void write(const std::string& text) {
    file_ << text << std::flush;
    check();
  }

 private:
  void check() const {
    if (!file_) {
      throw std::runtime_error(fmt::format("gradcheck: cannot write {}: {}", path_,
                                           std::generic_category().message(errno)));
    }
  }

  std::string path_;
  std::ofstream file_;
};

int run_command(int argc, char** argv) {
  Options options;
  const chargrad::train::SettingList settings = setting_list(options);
  const auto arguments = chargrad::train::parse_arguments(kProgram, settings, argc, argv);
  if (arguments.help || arguments.version) {
    fmt::print("{}\n", arguments.help ? help_text(kProgram, settings) : version_text(kProgram));
    return 0;
  }
  apply_arguments(kProgram, settings, arguments);

  const std::vector<Case> cases = cases_of(arguments.words);
  if (options.list) {
    for (const Case& c : cases) {
      fmt::print("{}\n", c.name);
    }
    return 0;
  }
  const bool to_stdout = options.json && options.json->empty();
  std::optional<JsonFile> file;
  if (options.json && !to_stdout) {
    file.emplace(*options.json);
  }
  const std::vector<Outcome> outcomes = run(cases, /*quiet=*/to_stdout);
  if (to_stdout) {
    fmt::print("{}", to_json(outcomes));
  } else if (file) {
    file->write(to_json(outcomes));
  }
  return all_passed(outcomes) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return chargrad::train::run_program(kProgram, [&] { return run_command(argc, argv); });
}
