// Reference numbers for tests: small ones that lie beside this file and are made by the scripts
// there, and a shared folder of larger ones that not every machine has.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace chargrad::tests {

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("cannot open " + path.string());
  }
  return nlohmann::json::parse(file);
}

inline nlohmann::json golden(const std::string& name) {
  return read_json(std::filesystem::path(CHARGRAD_GOLDEN_DIR) / name);
}

// A file of the folder that the environment variable CHARGRAD_SHARED names; nothing without it.
inline std::optional<nlohmann::json> shared_json(const std::string& name) {
  const char* folder = std::getenv("CHARGRAD_SHARED");
  if (folder == nullptr) {
    return std::nullopt;
  }
  return read_json(std::filesystem::path(folder) / name);
}

// The values of a case: "hex" (hexadecimal floats) or "ints".
inline std::vector<double> values_of(const nlohmann::json& entry) {
  std::vector<double> values;
  if (entry.contains("ints")) {
    return entry.at("ints").get<std::vector<double>>();
  }
  for (const auto& text : entry.at("hex")) {
    values.push_back(std::strtod(text.get<std::string>().c_str(), nullptr));
  }
  return values;
}

// Negative seeds wrap around, as in Generator::manual_seed.
inline uint64_t seed_of(const nlohmann::json& entry) {
  const auto& seed = entry.at("seed");
  return seed.is_number_unsigned() ? seed.get<uint64_t>()
                                   : static_cast<uint64_t>(seed.get<int64_t>());
}

}  // namespace chargrad::tests
