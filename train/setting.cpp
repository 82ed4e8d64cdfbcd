#include "train/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/code_points.h"
#include "engine/check.h"
#include "train/nearest.h"

namespace chargrad::train {

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// The number that the whole text spells, or nothing.
template <class Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) {
    return std::nullopt;
  }
  return number;
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (lower == "true" || lower == "1") {
    return true;
  }
  if (lower == "false" || lower == "0") {
    return false;
  }
  return std::nullopt;
}

std::string assign_bool(bool& member, std::optional<bool> value) {
  if (!value) {
    return "is not true, false, 1 or 0";
  }
  member = *value;
  return {};
}

std::string assign_number(const WholeRange& range, int64_t& member, std::optional<int64_t> value) {
  if (!value || *value < range.low || *value > range.high) {
    return fmt::format("is not a whole number in [{}, {}]", range.low, range.high);
  }
  member = *value;
  return {};
}

std::string assign_number(const RealRange& range, double& member, std::optional<double> value) {
  const bool closed = range.includes_high && std::isfinite(range.high);
  // A NaN fails the first comparison, an infinity the second.
  const bool fits = value && *value >= range.low && std::isfinite(*value) &&
                    (closed ? *value <= range.high : *value < range.high);
  if (!fits) {
    return fmt::format("is not a number in [{}, {}{}", range.low, range.high, closed ? "]" : ")");
  }
  member = *value + 0.0;  // A negative zero becomes zero.
  return {};
}

std::string assign_string(const Setting& setting, std::string& member, std::string_view value) {
  if (!setting.choices.empty()) {
    if (std::find(setting.choices.begin(), setting.choices.end(), value) == setting.choices.end()) {
      return setting.choices.size() == 1
                 ? fmt::format("is not supported, only {} is", setting.choices.front())
                 : fmt::format("is not one of {}", fmt::join(setting.choices, ", "));
    }
  } else if (value.empty() && !setting.may_be_empty) {
    return "is empty";
  } else if (!data::is_utf8(value)) {
    return "is not UTF-8";
  }
  member = value;
  return {};
}

std::string assign_optional(std::optional<std::string>& member, std::string_view value) {
  if (!data::is_utf8(value)) {
    return "is not UTF-8";
  }
  member = std::string(value);
  return {};
}

std::optional<int64_t> whole_of(const Json& value) {
  const bool fits =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
          : value.is_number_integer();
  return fits ? std::optional<int64_t>(value.get<int64_t>()) : std::nullopt;
}

// 0 and 1 are taken as on the command line.
std::optional<bool> bool_of(const Json& value) {
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  const std::optional<int64_t> number = whole_of(value);
  return number == 0 || number == 1 ? std::optional<bool>(number == 1) : std::nullopt;
}

}  // namespace

Setting& Setting::defaults_to(std::string text) {
  default_text = std::move(text);
  return *this;
}

Setting& Setting::also_called(std::string other) {
  other_name = std::move(other);
  return *this;
}

Setting& Setting::fixed_on_resume() {
  on_resume = OnResume::kFixed;
  return *this;
}

Setting& Setting::asked_each_time() {
  on_resume = OnResume::kAsked;
  return *this;
}

Setting& Setting::empty_allowed() {
  may_be_empty = true;
  return *this;
}

bool Setting::value_is_optional() const {
  return is_switch || std::holds_alternative<std::optional<std::string>*>(target);
}

std::string Setting::assign_text(std::string_view text) const {
  return std::visit(
      Overloaded{
          [&](bool* member) { return assign_bool(*member, parse_bool(text)); },
          [&](int64_t* member) {
            return assign_number(whole, *member, parse_whole<int64_t>(text));
          },
          [&](double* member) { return assign_number(real, *member, parse_whole<double>(text)); },
          [&](std::string* member) { return assign_string(*this, *member, text); },
          [&](std::optional<std::string>* member) { return assign_optional(*member, text); }},
      target);
}

std::string Setting::assign_json(const Json& value) const {
  const auto text_of = [&value](auto assign) {
    return value.is_string() ? assign(value.get_ref<const std::string&>())
                             : std::string("is not a text in quotes");
  };
  return std::visit(
      Overloaded{
          [&](bool* member) { return assign_bool(*member, bool_of(value)); },
          [&](int64_t* member) { return assign_number(whole, *member, whole_of(value)); },
          [&](double* member) {
            return assign_number(
                real, *member,
                value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt);
          },
          [&](std::string* member) {
            return text_of(
                [&](const std::string& text) { return assign_string(*this, *member, text); });
          },
          [&](std::optional<std::string>* member) {
            if (value.is_null()) {
              member->reset();
              return std::string();
            }
            return text_of([&](const std::string& text) { return assign_optional(*member, text); });
          }},
      target);
}

std::string Setting::text() const {
  return std::visit(Overloaded{[](const std::string* member) { return *member; },
                               [](const std::optional<std::string>* member) {
                                 return member->value_or(std::string());
                               },
                               [](const auto* member) { return fmt::format("{}", *member); }},
                    target);
}

Json Setting::json() const {
  return std::visit(Overloaded{[](const std::optional<std::string>* member) {
                                 return *member ? Json(**member) : Json(nullptr);
                               },
                               [](const auto* member) { return Json(*member); }},
                    target);
}

void SettingList::group(std::string name) {
  group_ = std::move(name);
}

Setting& SettingList::add(Setting setting) {
  CHARGRAD_DCHECK(find(setting.name) == nullptr, "settings: ", setting.name, " is there twice");
  setting.group = group_;
  settings_.push_back(std::move(setting));
  return settings_.back();
}

Setting& SettingList::boolean(std::string name, bool& member, std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.placeholder = "true|false";
  setting.target = &member;
  return add(std::move(setting));
}

Setting& SettingList::toggle(std::string name, bool& member, std::string help) {
  Setting& setting = boolean(std::move(name), member, std::move(help));
  setting.is_switch = true;
  return setting;
}

Setting& SettingList::whole(std::string name, int64_t& member, WholeRange range, std::string unit,
                            std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.unit = std::move(unit);
  setting.placeholder = "N";
  setting.target = &member;
  setting.whole = range;
  return add(std::move(setting));
}

Setting& SettingList::real(std::string name, double& member, RealRange range, std::string unit,
                           std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.unit = std::move(unit);
  setting.placeholder = "X";
  setting.target = &member;
  setting.real = range;
  return add(std::move(setting));
}

Setting& SettingList::choice(std::string name, std::string& member,
                             std::vector<std::string> choices, std::string help) {
  Setting& setting =
      text(std::move(name), member, fmt::format("{}", fmt::join(choices, "|")), std::move(help));
  setting.choices = std::move(choices);
  return setting;
}

Setting& SettingList::text(std::string name, std::string& member, std::string placeholder,
                           std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.placeholder = std::move(placeholder);
  setting.target = &member;
  return add(std::move(setting));
}

Setting& SettingList::optional_text(std::string name, std::optional<std::string>& member,
                                    std::string placeholder, std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.placeholder = std::move(placeholder);
  setting.target = &member;
  return add(std::move(setting));
}

const Setting* SettingList::find(std::string_view name) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [name](const Setting& setting) { return setting.name == name; });
  return found == settings_.end() ? nullptr : &*found;
}

std::string SettingList::nearest(std::string_view name) const {
  std::vector<std::string_view> names;
  names.reserve(settings_.size());
  for (const Setting& setting : settings_) {
    if (setting.other_name == name && !name.empty()) {
      return setting.name;
    }
    names.emplace_back(setting.name);
  }
  return std::string(nearest_name(name, names));
}

Json to_json(const SettingList& settings) {
  Json object = Json::object();
  for (const Setting& setting : settings) {
    object[setting.name] = setting.json();
  }
  return object;
}

std::string shown(std::string_view text, size_t longest) {
  return data::printable(text, longest);
}

std::string shown_json(const Json& value) {
  return shown(value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

std::string_view without_source(std::string_view message, std::string_view function) {
  const bool opens =
      message.substr(0, function.size()) == function && message.substr(function.size(), 2) == ": ";
  return opens ? message.substr(function.size() + 2) : message;
}

}  // namespace chargrad::train
