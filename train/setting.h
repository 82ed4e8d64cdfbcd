// One setting of a program: its name, what it means, which values it takes, where it is kept. The
// command line, --help, the JSON files and the checks all run over a list of these, so a setting is
// described in one place only. No printing and no files here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chargrad::train {

// Keeps the order of its keys.
using Json = nlohmann::ordered_json;

// Both ends belong to the range.
struct WholeRange {
  int64_t low;
  int64_t high;
};

// `low` belongs to the range, `high` only where it is said; an infinite `high` is no bound.
struct RealRange {
  double low;
  double high;
  bool includes_high = true;
};

// What --resume does with a setting.
enum class OnResume {
  kTaken,  // Comes from the run; the command line may change it.
  kFixed,  // Comes from the run; another value is refused.
  kAsked,  // Belongs to one call of the program and is never taken from the run.
};

// Holds a pointer to the member that it describes: valid as long as that struct. Copies share it.
struct Setting {
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::optional<std::string>*>;

  std::string name;
  std::string group;
  std::string help;
  std::string unit;         // What a number counts ("iterations"); may be empty.
  std::string placeholder;  // What --help shows for the value: N, FILE, a|b.
  Target target;
  WholeRange whole{0, 0};
  RealRange real{0, 0};
  std::vector<std::string> choices;  // Of a text; empty: any text.
  bool may_be_empty = false;         // Of a text without choices.
  bool is_switch = false;            // A boolean that is true by its name alone.
  std::string default_text;          // Said by --help in place of the value, where not empty.
  std::string other_name;            // nanoGPT's, where ours differs: named to who types it.
  OnResume on_resume = OnResume::kTaken;

  // Modifiers for the lists of settings.
  Setting& defaults_to(std::string text);
  Setting& also_called(std::string other);
  Setting& fixed_on_resume();
  Setting& asked_each_time();
  Setting& empty_allowed();

  // True where the value may be left out; it is then given only with `=`.
  bool value_is_optional() const;

  // Sets the member from a whole text or a JSON value of the right type. Returns an empty string,
  // or the broken rule ("is not a whole number in [1, 8]") and leaves the member as it was.
  [[nodiscard]] std::string assign_text(std::string_view text) const;
  [[nodiscard]] std::string assign_json(const Json& value) const;

  // The value as the command line takes it, and as JSON; both read back exactly.
  std::string text() const;
  Json json() const;
};

// The settings of one program, in the order of --help. Names are unique.
class SettingList {
 public:
  // The settings added from here on belong to this group of --help.
  void group(std::string name);

  // A boolean that needs a value, and a switch, which is true when it stands alone.
  Setting& boolean(std::string name, bool& member, std::string help);
  Setting& toggle(std::string name, bool& member, std::string help);
  Setting& whole(std::string name, int64_t& member, WholeRange range, std::string unit,
                 std::string help);
  Setting& real(std::string name, double& member, RealRange range, std::string unit,
                std::string help);
  Setting& choice(std::string name, std::string& member, std::vector<std::string> choices,
                  std::string help);
  Setting& text(std::string name, std::string& member, std::string placeholder, std::string help);
  // Absent, present without a value (an empty text) or present with one.
  Setting& optional_text(std::string name, std::optional<std::string>& member,
                         std::string placeholder, std::string help);

  const Setting* find(std::string_view name) const;
  // The known name that `name` was probably meant to be; empty if none is near.
  std::string nearest(std::string_view name) const;

  std::vector<Setting>::const_iterator begin() const { return settings_.begin(); }
  std::vector<Setting>::const_iterator end() const { return settings_.end(); }

 private:
  Setting& add(Setting setting);

  std::vector<Setting> settings_;
  std::string group_;
};

// One object, a key a setting, in the list's order.
Json to_json(const SettingList& settings);

// `text` for an error message: one line, about `longest` bytes at most, what does not show as \xNN.
std::string shown(std::string_view text, size_t longest = 60);
std::string shown_json(const Json& value);

// A message of the engine without the function's name that opens it: "f: x is y" and "f" -> "x is
// y".
std::string_view without_source(std::string_view message, std::string_view function);

}  // namespace chargrad::train
