#include "train/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "train/files.h"
#include "train/json_file.h"

namespace chargrad::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "model.safetensors";
// The files of a checkpoint.
const std::set<std::string> kParts{kModel, "config.json", "vocab.json", "trainer.safetensors",
                                   "trainer.json"};

constexpr int64_t kMostTurns = 1'000'000;  // more are not counted

// Of what the path leads to; throws where that cannot be told.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) {
    fail_reading(path, error);
  }
  return type;
}

}  // namespace

bool CheckpointName::operator<(const CheckpointName& other) const {
  return std::tie(iter, turn) < std::tie(other.iter, other.turn);
}

std::string checkpoint_name(const CheckpointName& name) {
  return fmt::format("ckpt-{:06}", name.iter) +
         (name.turn == 1 ? std::string() : fmt::format("-{}", name.turn));
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view name) {
  constexpr std::string_view kPrefix = "ckpt-";
  if (name.substr(0, kPrefix.size()) != kPrefix) {
    return std::nullopt;
  }
  CheckpointName parsed{0, 1};
  const char* const end = name.data() + name.size();
  std::from_chars_result read = std::from_chars(name.data() + kPrefix.size(), end, parsed.iter);
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, parsed.turn);
  }
  const bool is_one = read.ec == std::errc() && read.ptr == end && parsed.iter >= 0 &&
                      parsed.turn >= 1 && parsed.turn <= kMostTurns &&
                      checkpoint_name(parsed) == name;
  return is_one ? std::optional<CheckpointName>(parsed) : std::nullopt;
}

std::vector<std::string> checkpoints(const fs::path& path) {
  std::vector<std::pair<CheckpointName, std::string>> found;
  for (const std::string& name : names_in(path)) {
    if (const auto parsed = parse_checkpoint_name(name)) {
      found.emplace_back(*parsed, name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names(found.size());
  std::transform(found.begin(), found.end(), names.begin(),
                 [](const auto& checkpoint) { return checkpoint.second; });
  return names;
}

std::string new_checkpoint_name(const fs::path& path, int64_t iter) {
  CheckpointName name{iter, 1};
  for (const std::string& other : checkpoints(path)) {
    const CheckpointName taken = *parse_checkpoint_name(other);
    if (taken.iter == iter) {
      name.turn = taken.turn + 1;
    }
  }
  return checkpoint_name(name);
}

bool holds_only_checkpoint_files(const fs::path& path) {
  if (type_at(path) != fs::file_type::directory) {
    return false;
  }
  const std::vector<std::string> held = names_in(path);
  return std::all_of(held.begin(), held.end(), [&path](const std::string& part) {
    return kParts.count(part) != 0 && type_at(path / part) != fs::file_type::directory;
  });
}

bool is_whole_checkpoint(const fs::path& path) {
  return holds_only_checkpoint_files(path) && names_in(path).size() == kParts.size();
}

bool holds_model(const fs::path& checkpoint) {
  const fs::path model = checkpoint / kModel;
  std::error_code ignored;
  switch (type_of(model)) {
    case fs::file_type::regular:
      return fs::file_size(model, ignored) != 0;
    case fs::file_type::not_found:
      return is_link(model);
    default:
      return false;
  }
}

void remove_checkpoint(const fs::path& checkpoint) {
  remove_path(checkpoint / kModel);
  remove_path(checkpoint);
}

Evaluation evaluation_of(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "trainer.json";
  if (type_of(file) != fs::file_type::regular) {
    return {};
  }
  const std::string text = read_whole_file(file, kLargestJsonFile);
  try {
    const Members members(parse_json(text, shown_path(file)), shown_path(file));
    if (!members.has("val_loss") || members.at("val_loss").is_null()) {
      return {!members.boolean("eval_done"), std::nullopt};
    }
    return {true, members.at("val_loss").get<double>()};
  } catch (const std::runtime_error&) {
    return {};
  } catch (const Json::exception&) {
    return {};
  }
}

std::string led_to(const fs::path& path, const std::string& link) {
  std::error_code error;
  const fs::path target = fs::canonical(path / link, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
      error == std::errc::too_many_symbolic_link_levels) {
    return {};
  }
  const fs::path folder = error ? fs::path() : fs::canonical(path, error);
  if (error) {
    fail_reading(path / link, error);
  }
  const std::string name = target.filename().string();
  const bool is_checkpoint = target.parent_path() == folder && parse_checkpoint_name(name) &&
                             type_of(target) == fs::file_type::directory;
  return is_checkpoint ? name : std::string();
}

void check_is_no_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / kModel, ignored) && fs::exists(path / "trainer.json", ignored)) {
    throw std::runtime_error(
        fmt::format("{} is a checkpoint, not the folder of a run, which would be {}",
                    shown_path(path), shown_path(fs::weakly_canonical(path).parent_path())));
  }
}

fs::path find_checkpoint(const fs::path& path, const std::string& name) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw std::runtime_error(fmt::format("cannot open the run folder {}: {}", shown_path(path),
                                         error ? error.message() : "not a folder"));
  }
  const auto is_folder = [&error](const fs::path& place) {
    const bool is = fs::is_directory(place, error);
    if (error && error != std::errc::no_such_file_or_directory &&
        error != std::errc::too_many_symbolic_link_levels) {
      throw std::runtime_error(
          fmt::format("cannot open {}: {}", shown_path(place), error.message()));
    }
    return is;
  };
  const std::vector<std::string> names =
      name.empty() ? std::vector<std::string>{"best", "last"} : std::vector<std::string>{name};
  for (const std::string& candidate : names) {
    if (is_folder(path / candidate)) {
      return path / candidate;
    }
  }
  const std::string half_done = name == "best" ? "" : led_to(path, "last.tmp");
  if (!half_done.empty()) {
    return path / half_done;
  }
  std::vector<std::string> unlinked = checkpoints(path);
  unlinked.erase(std::remove_if(unlinked.begin(), unlinked.end(),
                                [&](const std::string& one) {
                                  return is_link(path / one) || !is_folder(path / one) ||
                                         !holds_model(path / one);
                                }),
                 unlinked.end());
  if (name != "best" && !unlinked.empty()) {
    return path / unlinked.back();
  }
  check_is_no_checkpoint(path);
  throw std::runtime_error(unlinked.empty()
                               ? fmt::format("{} holds no checkpoint: {} is not there",
                                             shown_path(path), fmt::join(names, " or "))
                               : fmt::format("{} leads to none of the checkpoints {}",
                                             shown_path(path / name), fmt::join(unlinked, ", ")));
}

}  // namespace chargrad::train
