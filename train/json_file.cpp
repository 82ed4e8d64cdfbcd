#include "train/json_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "train/files.h"

namespace chargrad::train {

namespace {

// Without the library's "[json.exception.parse_error.101] " in front.
std::string reason(const Json::exception& error) {
  constexpr size_t kLongest = 200;
  const std::string text = error.what();
  const size_t bracket = text.find("] ");
  return shown(bracket == std::string::npos ? text : text.substr(bracket + 2), kLongest);
}

// Builds the value of a text. The library's own builder keeps the last of two equal keys, and where
// it is watched, or meets an object of many keys, it takes the square of their number.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const std::string& where) : where_(where) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t /*members*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    constexpr size_t kMostKeys = 100'000;
    Level& level = open_.back();
    if (!level.keys.insert(name).second) {
      fail("key \"{}\" is given twice", shown(name));
    }
    if (level.keys.size() > kMostKeys) {
      fail("more than {} keys in one object", kMostKeys);
    }
    level.key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*last*/,
                   const nlohmann::detail::exception& error) override {
    fail("{}", reason(error));
  }

 private:
  // An object or an array that is not complete. It stays where it is: what holds it grows only
  // when it is.
  struct Level {
    Json* value;
    std::set<std::string> keys;
    std::string key;  // of the member that comes next
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw std::runtime_error(
        fmt::format("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...)));
  }

  // Two bytes of text may become a value of fifty.
  Json& put(Json value) {
    constexpr int64_t kMostValues = 1'200'000;  // each of Unicode's 1,114,112 code points, and more
    if (++values_ > kMostValues) {
      fail("more than {} JSON values", kMostValues);
    }
    if (open_.empty()) {
      return root_ = std::move(value);
    }
    Level& level = open_.back();
    if (level.value->is_array()) {
      auto& elements = level.value->get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return elements.back();
    }
    auto& members = level.value->get_ref<Json::object_t&>();
    members.emplace_back(std::move(level.key), std::move(value));
    return members.back().second;
  }

  bool add(Json value) {
    put(std::move(value));
    return true;
  }

  bool open(Json value) {
    constexpr size_t kDeepest = 64;
    if (open_.size() == kDeepest) {
      fail("JSON nested deeper than {}", kDeepest);
    }
    open_.push_back({&put(std::move(value)), {}, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  Json root_;
  std::vector<Level> open_;
  int64_t values_ = 0;
};

}  // namespace

Json parse_json(const std::string& text, const std::string& where, Comments comments) {
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    // To the library it would be the end.
    throw std::runtime_error(fmt::format("{}: byte {} is NUL, which no JSON holds", where, nul));
  }
  Builder builder(where);
  Json::sax_parse(text, &builder, Json::input_format_t::json, /*strict=*/true,
                  comments == Comments::kAllowed);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, Comments comments) {
  const FileKind kind = comments == Comments::kAllowed ? FileKind::kAny : FileKind::kRegular;
  return parse_json(read_whole_file(path, kLargestJsonFile, kind), shown_path(path), comments);
}

Members::Members(Json object, std::string where)
    : object_(std::move(object)), where_(std::move(where)) {
  if (!object_.is_object()) {
    fail("a JSON object is expected, got {}", shown_json(object_));
  }
}

Members Members::read(const std::filesystem::path& path) {
  return {read_json_file(path), shown_path(path)};
}

bool Members::has(const char* name) const {
  return object_.contains(name);
}

const Json& Members::at(const char* name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) {
    fail("{} is missing", name);
  }
  return *found;
}

const Json& Members::checked(const char* name, bool (Json::*is_right)() const noexcept,
                             const char* type) const {
  const Json& value = at(name);
  if (!(value.*is_right)()) {
    fail("{} must be {}, got {}", name, type, shown_json(value));
  }
  return value;
}

const Json& Members::array(const char* name) const {
  return checked(name, &Json::is_array, "an array");
}

Members Members::object(const char* name) const {
  return {checked(name, &Json::is_object, "an object"), where_};
}

std::string Members::text(const char* name) const {
  return checked(name, &Json::is_string, "a text").get<std::string>();
}

std::string Members::choice(const char* name, const std::vector<std::string>& choices) const {
  std::string value = text(name);
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    fail("{} must be one of {}, got {}", name, fmt::join(choices, ", "), shown_json(at(name)));
  }
  return value;
}

bool Members::boolean(const char* name) const {
  return checked(name, &Json::is_boolean, "true or false").get<bool>();
}

double Members::real(const char* name, double low, double high) const {
  const Json& value = at(name);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    fail("{} must be a number in [{}, {}], got {}", name, low, high, shown_json(value));
  }
  return number;
}

int64_t Members::whole(const char* name, const Json& value, int64_t low, int64_t high) const {
  // Numbers from 0 on are unsigned to nlohmann, and up to 2^64.
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(high)
                        : value.is_number_integer();
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    const std::string end =
        high == std::numeric_limits<int64_t>::max() ? "2^63)" : fmt::format("{}]", high);
    fail("{} must be a whole number in [{}, {}, got {}", name, low, end, shown_json(value));
  }
  return value.get<int64_t>();
}

int64_t Members::whole(const char* name, int64_t low, int64_t high) const {
  return whole(name, at(name), low, high);
}

std::vector<int64_t> Members::wholes(const char* name, int64_t low, int64_t high) const {
  std::vector<int64_t> values;
  for (const Json& value : array(name)) {
    values.push_back(whole(name, value, low, high));
  }
  return values;
}

void Members::check_version(int64_t supported) const {
  const int64_t version = whole("version", 0, std::numeric_limits<int64_t>::max());
  if (version != supported) {
    fail("version {} is not supported; this program reads version {}", version, supported);
  }
}

}  // namespace chargrad::train
