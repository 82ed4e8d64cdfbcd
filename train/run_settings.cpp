#include "train/run_settings.h"

#include "train/files.h"
#include "train/json_file.h"

namespace chargrad::train {
namespace {

constexpr int64_t kVersion = 1;

}  // namespace

std::string run_settings_text(const RunSettings& run) {
  Json object = Json::object();
  object["version"] = kVersion;
  object["chargrad"] = CHARGRAD_VERSION;
  object["kernels"] = run.kernels;
  object["settings"] = to_json(run.settings);
  object["data"] = {
      {"path", run.data_path}, {"bytes", run.data_bytes}, {"sha256", run.data_sha256}};
  // A path that is not UTF-8 is written with replacements rather than refused.
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunSettings read_run_settings(const std::filesystem::path& file) {
  const Members members = Members::read(file);
  members.check_version(kVersion);
  RunSettings run;
  run.kernels = members.has("kernels") ? members.text("kernels") : "";
  run.settings = train_settings_from_json(members.at("settings"), shown_path(file));
  const Members data = members.object("data");
  run.data_path = data.text("path");
  run.data_bytes = data.whole("bytes", 0, INT64_MAX);
  run.data_sha256 = data.text("sha256");
  return run;
}

}  // namespace chargrad::train
