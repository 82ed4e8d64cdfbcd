#include "train/run_settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "train/files.h"
#include "train/json_file.h"

namespace chargrad::train {
namespace {

constexpr int64_t kVersion = 1;

// The member of that name.
const Json& member(const std::string& where, const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) {
    throw std::runtime_error(fmt::format("{}: {} is missing", where, name));
  }
  return object.at(name);
}

template <class T>
T typed(const std::string& where, const Json& object, const char* name, bool right,
        const char* type) {
  if (!right) {
    throw std::runtime_error(fmt::format("{}: {} must be {}, got {}", where, name, type,
                                         shown_json(member(where, object, name))));
  }
  return member(where, object, name).get<T>();
}

}  // namespace

void write_run_settings(const std::filesystem::path& file, const RunSettings& run) {
  Json object = Json::object();
  object["version"] = kVersion;
  object["chargrad"] = CHARGRAD_VERSION;
  object["settings"] = to_json(run.settings);
  object["data"] = {
      {"path", run.data_path}, {"bytes", run.data_bytes}, {"sha256", run.data_sha256}};
  // A path that is not UTF-8 is written with replacements rather than refused.
  replace_file(file, object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

RunSettings read_run_settings(const std::filesystem::path& file) {
  const std::string where = file.string();
  const Json object = read_json_file(where);
  const Json& version = member(where, object, "version");
  if (!version.is_number_integer() || version != kVersion) {
    throw std::runtime_error(fmt::format("{}: version {} is not supported; this program reads {}",
                                         where, shown_json(version), kVersion));
  }
  RunSettings run;
  run.settings = train_settings_from_json(member(where, object, "settings"), where);
  const Json& data = member(where, object, "data");
  run.data_path =
      typed<std::string>(where, data, "path", member(where, data, "path").is_string(), "a text");
  run.data_bytes = typed<int64_t>(
      where, data, "bytes", member(where, data, "bytes").is_number_unsigned(), "a whole number");
  run.data_sha256 = typed<std::string>(where, data, "sha256",
                                       member(where, data, "sha256").is_string(), "a text");
  return run;
}

}  // namespace chargrad::train
