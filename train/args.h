// The command line of the programs: words into names and texts, --help, the last catch of a main.
// What the flags are is said by a SettingList; values are checked when they are applied to it.
//
// Rules: --a_b and --a-b are one flag; --flag=value and --flag value both work; a flag whose value
// is optional (a switch such as --resume, or --json) takes one only with `=`; a value that begins
// with two dashes needs `=` as well; of a flag given twice every value is checked and the last one
// holds; after a lone -- everything is a word. Names are never abbreviated.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/setting.h"

namespace chargrad::train {

// The user asked for something that cannot be: exit status 2. The text names program and flag.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

struct Program {
  std::string name;     // "train"; opens every message.
  std::string purpose;  // One sentence, for --help.
  std::string usage;    // After the name: "--data=FILE [flags]".
  bool takes_words = false;
};

struct Assignment {
  std::string name;  // With underscores, known to the list.
  std::string value;
};

struct Arguments {
  std::vector<Assignment> flags;   // In the order given.
  std::vector<std::string> words;  // Empty unless the program takes words.
  bool help = false;               // --help or -h was among the flags: nothing else is read.
  bool version = false;            // The same for --version.
};

// Throws UsageError for unknown flags, missing values and words that the program does not take.
Arguments parse_arguments(const Program& program, const SettingList& settings, int argc,
                          const char* const* argv);

// Sets the members behind `settings`, in the order given. Throws UsageError naming flag, value and
// range: "train: --batch_size=2.5 is not a whole number in [1, 1048576]".
void apply_arguments(const Program& program, const SettingList& settings,
                     const Arguments& arguments);

// Groups in the list's order, the present values as defaults.
std::string help_text(const Program& program, const SettingList& settings);

// "train (chargrad) 0.1.0".
std::string version_text(const Program& program);

// Writes a line to stderr, what does not show as \xNN. That it may not get there is no reason to
// stop.
void print_error(std::string_view line);

// Writes the line to stderr if stdout did not take everything, and none was written for that yet.
void warn_of_lost_output(std::string_view line);

// Runs `body` and returns its exit status. A standard stream that is closed is taken as one that
// fails, so that no file of the program takes its number. Whatever it throws becomes one line on
// stderr that opens with the program's name, and the status 2 (UsageError) or 1; lost output one
// too, unless a signal ended `body` or warn_of_lost_output has told of it.
int run_program(const Program& program, const std::function<int()>& body);

}  // namespace chargrad::train
