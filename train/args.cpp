#include "train/args.h"

// Its std::regex gives g++ 12 false warnings under sanitizers, and is not used here.
#define CXXOPTS_NO_REGEX

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <cxxopts.hpp>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

namespace chargrad::train {

namespace {

constexpr char kHelpGroup[] = "Help";
constexpr int kStoppedBySignal = 128;  // and more: an exit status that tells of a signal

// Of "--a-b=c-d", "a_b".
std::string flag_name(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

[[noreturn]] void fail_unknown(const Program& program, const SettingList& settings,
                               const std::string& word) {
  const std::string typed = word.substr(0, word.find('='));
  if (typed == "--help" || typed == "-h" || typed == "--version") {
    throw UsageError(fmt::format("{}: {} takes no value", program.name, typed));
  }
  const std::string near = settings.nearest(flag_name(word));
  const std::string hint = near.empty() ? fmt::format("{} --help lists the flags", program.name)
                                        : fmt::format("did you mean --{}?", near);
  throw UsageError(fmt::format("{}: unknown flag {}; {}", program.name, shown(typed), hint));
}

// The value of the flag at words[at], which moves on to the last word that belongs to it. Throws
// where a value is missing, looks like a flag, or would be taken for a word.
std::string take_value(const Program& program, const Setting& setting,
                       const std::vector<std::string>& words, size_t& at) {
  const size_t equals = words[at].find('=');
  if (equals != std::string::npos) {
    std::string value = words[at].substr(equals + 1);
    if (value.empty() && setting.value_is_optional() && !setting.is_switch) {
      throw UsageError(fmt::format("{0}: --{1}= gives no {2}; --{1} alone or --{1}={2}",
                                   program.name, setting.name, setting.placeholder));
    }
    return value;
  }
  const bool is_last = at + 1 == words.size();
  if (setting.value_is_optional()) {
    if (!program.takes_words && !is_last && words[at + 1].rfind('-', 0) != 0) {
      throw UsageError(fmt::format("{0}: --{1} takes a value only with =: --{1}={2}", program.name,
                                   setting.name, shown(words[at + 1])));
    }
    return setting.is_switch ? "true" : "";
  }
  if (is_last) {
    throw UsageError(fmt::format("{0}: --{1} needs a value: --{1}={2}", program.name, setting.name,
                                 setting.placeholder));
  }
  if (words[at + 1].rfind("--", 0) == 0) {
    throw UsageError(fmt::format("{0}: --{1} needs a value, got {2}; write --{1}={2} if that is it",
                                 program.name, setting.name, shown(words[at + 1])));
  }
  return words[++at];
}

// "Context length (characters; default: 64)".
std::string description_of(const Setting& setting) {
  const std::string& fixed = setting.default_text;
  const std::string value = fixed.empty() ? setting.text() : fixed;
  std::string notes = setting.unit;
  if (!value.empty() && !setting.is_switch) {
    notes += fmt::format("{}default: {}", notes.empty() ? "" : "; ", value);
  }
  return notes.empty() ? setting.help : fmt::format("{} ({})", setting.help, notes);
}

// cxxopts lays out the help. It does not read the command line: it takes 1e-3abc for 0.001 and
// `--bias false` for true, and where it matches flags by std::regex, a line break in a value is an
// error and a long value overflows the stack.
cxxopts::Options options_of(const Program& program, const SettingList& settings) {
  constexpr size_t kHelpWidth = 100;
  cxxopts::Options options(program.name, program.purpose + "\n");
  options.set_width(kHelpWidth).custom_help(program.usage);
  for (const Setting& setting : settings) {
    std::string placeholder = setting.placeholder;
    if (setting.is_switch) {
      placeholder.clear();
    } else if (setting.value_is_optional()) {
      placeholder = fmt::format("[={}]", setting.placeholder);
    }
    options.add_option(setting.group, "", setting.name, description_of(setting),
                       setting.is_switch ? cxxopts::value<bool>() : cxxopts::value<std::string>(),
                       placeholder);
  }
  options.add_options(kHelpGroup)("h,help", "Print this and stop")("version", "Print it and stop");
  return options;
}

// Opens for reading only, which makes writing fail, what of 0, 1 and 2 is closed.
void take_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) != stream) {
      return;  // Nothing can be opened; what needs a file will say so.
    }
  }
}

// Where stdout did not take everything; `error` is errno, 0 where it is not known.
std::string lost_output(int error) {
  const std::string message = "cannot write to the standard output";
  return error == 0 ? message : fmt::format("{}: {}", message, std::strerror(error));
}

}  // namespace

Arguments parse_arguments(const Program& program, const SettingList& settings, int argc,
                          const char* const* argv) {
  const std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  const auto dashes = std::find(all.begin(), all.end(), "--");
  const std::vector<std::string> words(all.begin(), dashes);

  Arguments arguments;
  for (const std::string& word : words) {
    arguments.help = arguments.help || word == "--help" || word == "-h";
    arguments.version = arguments.version || word == "--version";
  }
  if (arguments.help || arguments.version) {
    return arguments;
  }

  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() < 2 || words[i][0] != '-') {
      arguments.words.push_back(words[i]);
      continue;
    }
    const bool has_two_dashes = words[i].find_first_not_of('-') == 2;
    const Setting* setting = settings.find(flag_name(words[i]));
    if (!has_two_dashes || setting == nullptr) {
      fail_unknown(program, settings, words[i]);
    }
    arguments.flags.push_back({setting->name, take_value(program, *setting, words, i)});
  }
  if (dashes != all.end()) {
    arguments.words.insert(arguments.words.end(), dashes + 1, all.end());
  }
  if (!program.takes_words && !arguments.words.empty()) {
    const std::string& word = arguments.words.front();
    throw UsageError(fmt::format("{}: unexpected word {}; flags begin with --, as in --seed=1",
                                 program.name, word.empty() ? "''" : shown(word)));
  }
  return arguments;
}

void apply_arguments(const Program& program, const SettingList& settings,
                     const Arguments& arguments) {
  for (const Assignment& flag : arguments.flags) {
    const std::string broken = settings.find(flag.name)->assign_text(flag.value);
    if (!broken.empty()) {
      throw UsageError(
          fmt::format("{}: --{}={} {}", program.name, flag.name, shown(flag.value), broken));
    }
  }
}

std::string help_text(const Program& program, const SettingList& settings) {
  std::vector<std::string> groups;
  for (const Setting& setting : settings) {
    if (std::find(groups.begin(), groups.end(), setting.group) == groups.end()) {
      groups.push_back(setting.group);
    }
  }
  groups.emplace_back(kHelpGroup);
  return options_of(program, settings).help(groups);
}

std::string version_text(const Program& program) {
  return fmt::format("{} (chargrad) {}", program.name, CHARGRAD_VERSION);
}

void print_error(std::string_view line) {
  std::fprintf(stderr, "%s\n", shown(line, line.size() * 4).c_str());
}

void warn_of_lost_output(std::string_view line) {
  static bool told = false;
  if (!told && std::ferror(stdout) != 0) {
    told = true;
    print_error(line);
  }
}

int run_program(const Program& program, const std::function<int()>& body) {
  take_standard_streams();
  std::string message;
  int status = 1;
  try {
    status = body();
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
      return status;
    }
    if (status < kStoppedBySignal) {  // else what reads the output went by the same Ctrl-C
      warn_of_lost_output(program.name + ": " + lost_output(errno));
    }
    return std::max(status, 1);
  } catch (const UsageError& error) {
    message = error.what();
    status = 2;
  } catch (const std::system_error& error) {
    // fmt throws what an output larger than stdout's buffer meets.
    message = std::ferror(stdout) != 0 ? lost_output(error.code().value()) : error.what();
  } catch (const std::bad_alloc&) {
    message = "out of memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  if (message.rfind(program.name + ": ", 0) != 0) {
    message = program.name + ": " + message;
  }
  print_error(message);
  return status;
}

}  // namespace chargrad::train
