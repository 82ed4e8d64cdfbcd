// The recipes of train/configs/, compiled in by CMake.
#pragma once

#include <string>
#include <vector>

namespace chargrad::train {

struct Preset {
  std::string name;  // cpu for cpu.json.
  std::string json;  // The file's text, comments included.
};

// The default preset comes first.
const std::vector<Preset>& presets();

}  // namespace chargrad::train
