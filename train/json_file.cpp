#include "train/json_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "train/files.h"

namespace chargrad::train {

namespace {

// nlohmann keeps the last of two equal keys; this remembers the keys of the objects that are open.
// And it counts: two bytes of text may become a value of fifty.
class Watcher {
 public:
  explicit Watcher(const std::string& where) : where_(where) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    constexpr int kDeepest = 64;
    constexpr int64_t kMostValues = 1'200'000;  // each of Unicode's 1,114,112 code points, and more
    if (depth > kDeepest) {
      throw std::runtime_error(fmt::format("{}: JSON nested deeper than {}", where_, kDeepest));
    }
    const bool is_value = event == Json::parse_event_t::value ||
                          event == Json::parse_event_t::object_start ||
                          event == Json::parse_event_t::array_start;
    if (is_value && ++values_ > kMostValues) {
      throw std::runtime_error(fmt::format("{}: more than {} JSON values", where_, kMostValues));
    }
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        throw std::runtime_error(fmt::format("{}: key {} stands there twice", where_, shown(key)));
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> open_;
  int64_t values_ = 0;
};

// Without the library's "[json.exception.parse_error.101] " in front.
std::string reason(const Json::exception& error) {
  constexpr size_t kLongest = 200;
  const std::string text = error.what();
  const size_t bracket = text.find("] ");
  return shown(bracket == std::string::npos ? text : text.substr(bracket + 2), kLongest);
}

}  // namespace

Json parse_json(const std::string& text, const std::string& where, Comments comments) {
  try {
    return Json::parse(text, Watcher(where), /*allow_exceptions=*/true,
                       comments == Comments::kAllowed);
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", where, reason(error)));
  }
}

Json read_json_file(const std::filesystem::path& path, Comments comments) {
  constexpr int64_t kLargest = int64_t{16} << 20;
  const FileKind kind = comments == Comments::kAllowed ? FileKind::kAny : FileKind::kRegular;
  return parse_json(read_whole_file(path, kLargest, kind), shown_path(path), comments);
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
