// RUN/settings.json: every resolved setting, and which text the run is trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "train/settings.h"

namespace chargrad::train {

struct RunSettings {
  TrainSettings settings;
  std::string data_path;  // absolute
  int64_t data_bytes = 0;
  std::string data_sha256;
  std::string kernels;  // the tier whose numbers these are (engine/kernels/cpu.h); "": unknown
};

// What the file holds.
std::string run_settings_text(const RunSettings& run);

// Throws std::runtime_error naming the file and what is wrong with it.
RunSettings read_run_settings(const std::filesystem::path& file);

}  // namespace chargrad::train
