// gradcheck: the gradients of every op and every module against finite differences, the lessons
// number by number, and the experiment with the scale of attention.
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

#include "engine/kernels/cpu.h"
#include "tests/gradcheck/lesson.h"
#include "tests/gradcheck/report.h"
#include "tests/gradcheck/scaling_report.h"
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
    "(softmax/last_dim), a part of names (_softmax), or a text with * and ? (nn.*/with_bias).\n\n"
    "With --lesson or --scaling no case is run.",
    /*takes_words=*/true};

struct Options {
  bool list = false;
  std::optional<std::string> json;    // an empty text: to stdout
  std::optional<std::string> lesson;  // an empty text: all
  bool scaling = false;
  ScalingOptions experiment;
  std::string html;
};

chargrad::train::SettingList setting_list(Options& options) {
  chargrad::train::SettingList list;
  list.group("Output");
  list.toggle("list", options.list, "Print the names of the cases and stop");
  list.optional_text("json", options.json, "FILE",
                     "Print the results as one JSON array and nothing else; with =FILE, write it "
                     "there and print the lines too");
  list.group("Lessons");
  list.optional_text("lesson", options.lesson, "NAME",
                     "Print every number of the lessons, or of one, beside the engine's; exit "
                     "status 1 where one is off by more than a unit of its last digit");
  list.group("Scale of attention");
  list.toggle("scaling", options.scaling,
              "Show what attention's scale 1/sqrt(d_k) is for: scores, weights and gradients over "
              "the length of a key, each gradient confirmed by finite differences");
  list.whole("max_dk", options.experiment.max_dk, {1, 1 << 16}, "", "The longest key");
  list.whole("samples", options.experiment.samples, {1, 1 << 20}, "", "Queries for each length");
  list.whole("keys", options.experiment.keys, {2, 1 << 10}, "", "Keys for each query");
  list.whole("seed", options.experiment.seed, {0, (int64_t{1} << 32) - 1}, "",
             "Start of the random numbers");
  list.text("html", options.html, "FILE", "Write the curves there, as one page");
  return list;
}

// Runs the lesson of that name, or all for an empty one.
int run_lessons(const std::string& name) {
  std::string names;
  bool found = name.empty();
  for (const Lesson& lesson : lessons()) {
    names += (names.empty() ? "" : ", ") + lesson.name;
    found = found || lesson.name == name;
  }
  if (!found) {
    throw UsageError(
        fmt::format("gradcheck: --lesson={} is none of {}", chargrad::train::shown(name), names));
  }
  size_t compared = 0, off = 0;
  for (const Lesson& lesson : lessons()) {
    if (!name.empty() && lesson.name != name) {
      continue;
    }
    LessonSheet sheet;
    lesson.fill(sheet);
    fmt::print("{} -- {}\n  {:<34} {:>10}  {:>16}  {:>9}\n", lesson.name, lesson.title, "",
               "printed", "engine", "difference");
    for (const std::string& text : sheet.lines()) {
      fmt::print("{}\n", text);
    }
    fmt::print("\n");
    compared += sheet.compared();
    off += sheet.off();
  }
  fmt::print("{} numbers compared, {} off\n", compared, off);
  return off == 0 ? 0 : 1;
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
class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path), file_(path) { check(); }

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

int run_scaling(const Options& options) {
  const bool json_alone = options.json && options.json->empty();
  std::optional<OutputFile> json, html;
  if (options.json && !json_alone) {
    json.emplace(*options.json);
  }
  if (!options.html.empty()) {
    html.emplace(options.html);
  }
  const ScalingResult result = measure_scaling(options.experiment);
  fmt::print("{}", json_alone ? scaling_json(result) : scaling_text(result));
  if (json) {
    json->write(scaling_json(result));
  }
  if (html) {
    html->write(scaling_page(result));
  }
  return result.confirmed() ? 0 : 1;
}

int run_cases(const Options& options, const std::vector<Case>& cases) {
  const bool to_stdout = options.json && options.json->empty();
  std::optional<OutputFile> file;
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

// What does not go together.
void check_combination(const Options& options, const chargrad::train::Arguments& arguments) {
  if (options.lesson || options.scaling) {
    if (!arguments.words.empty() || options.list || (options.lesson && options.scaling)) {
      throw UsageError(
          "gradcheck: --lesson and --scaling exclude each other, a PATTERN and --list");
    }
  }
  for (const auto& flag : arguments.flags) {
    const bool of_scaling = flag.name == "max_dk" || flag.name == "samples" ||
                            flag.name == "keys" || flag.name == "seed" || flag.name == "html";
    if (of_scaling && !options.scaling) {
      throw UsageError(fmt::format("gradcheck: --{} needs --scaling", flag.name));
    }
  }
  if (options.json && (options.lesson || options.list)) {
    throw UsageError(
        fmt::format("gradcheck: --{} writes no JSON", options.lesson ? "lesson" : "list"));
  }
  if (options.json && !options.html.empty() && *options.json == options.html) {
    throw UsageError(fmt::format("gradcheck: --json and --html name the same file, {}",
                                 chargrad::train::shown(options.html)));
  }
}

int run_command(int argc, char** argv) {
  Options options;
  const chargrad::train::SettingList settings = setting_list(options);
  const auto arguments = chargrad::train::parse_arguments(kProgram, settings, argc, argv);
  if (arguments.help || arguments.version) {
    fmt::print("{}\n", arguments.help ? help_text(kProgram, settings) : version_text(kProgram));
    return 0;
  }
  apply_arguments(kProgram, settings, arguments);
  check_combination(options, arguments);
  if (options.lesson) {
    return run_lessons(*options.lesson);
  }
  if (options.scaling) {
    return run_scaling(options);
  }

  const std::vector<Case> cases = cases_of(arguments.words);
  if (options.list) {
    for (const Case& c : cases) {
      fmt::print("{}\n", c.name);
    }
    return 0;
  }
  return run_cases(options, cases);
}

}  // namespace

int main(int argc, char** argv) {
  return chargrad::train::run_program(kProgram, [&] {
    chargrad::kernels::active_tier();  // refuses a wrong CHARGRAD_CPU
    return run_command(argc, argv);
  });
}
