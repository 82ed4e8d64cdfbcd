#include "train/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "train/checkpoints.h"
#include "train/console.h"
#include "train/json_file.h"
#include "train/run_settings.h"

namespace chargrad::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPending = "pending-checkpoint";  // a checkpoint on its way

// What a run has besides its checkpoints and the lock. In the order in which to remove it: a run of
// which only a part is left is not to be taken for a whole one.
const std::vector<std::string> kLinks{"last", "best"};
const std::vector<std::string> kFiles{"settings.json", "metrics.jsonl", "trace.json"};
// What a crash or a failure leaves.
const std::vector<std::string> kLeftOvers{kPending, "settings.json.tmp", "last.tmp", "best.tmp",
                                          "trace.json.tmp"};

// `best`, `last`, and the next until it is whole.
constexpr int64_t kMostCheckpoints = 3;

void check_room_for(const fs::path& path, int64_t checkpoints, int64_t bytes_of_each) {
  const std::string what =
      checkpoints == 1 ? "a checkpoint needs" : fmt::format("{} checkpoints need", checkpoints);
  check_room(path, checkpoints * bytes_of_each, what);
}

std::vector<std::string> joined(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {}: {}", shown_path(path), error.message()));
  }
}

// Or is cut off before it differs.
bool begins_with(const fs::path& file, std::string_view beginning) {
  std::string bytes(beginning.size(), '\0');
  bytes.resize(FileReader(file).next(bytes.data(), bytes.size()));
  return bytes == beginning.substr(0, bytes.size());
}

bool reads_as_settings(const fs::path& file) {
  try {
    read_run_settings(file);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

// Whether what has a name of a run's is one: a link, or a checkpoint in its place, as a copy that
// follows links makes it; a folder of nothing but a checkpoint's files; a file that begins as a
// run's does. All else of that name is someone else's and stays.
bool is_a_runs(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name == "last" || name == "best") {
    return is_link(path) || is_whole_checkpoint(path);
  }
  if (name == "last.tmp" || name == "best.tmp") {
    return is_link(path);
  }
  if (name == kPending || parse_checkpoint_name(name)) {
    return holds_only_checkpoint_files(path);
  }
  if (type_at(path) != fs::file_type::regular) {
    return false;
  }
  return begins_with(path, name == "metrics.jsonl"   ? "{\"kind\":"
                           : name.find("trace") == 0 ? "{\"displayTimeUnit\":"
                                                     : "{\n  \"version\":") ||
         (name == "settings.json" && reads_as_settings(path));  // as an editor laid it out
}

void check_is_not_in_the_way(const fs::path& path) {
  if (is_there(path) && !is_a_runs(path)) {
    throw std::runtime_error(
        fmt::format("{} is in the way and no part of a run; move it, or use another --out_dir",
                    shown_path(path)));
  }
}

// Where a checkpoint itself has the place of the link, gives it a name of its own and links to it;
// and does the rest of that where a crash left it half done.
void restore_link(const fs::path& link) {
  const fs::path half_done = link.string() + ".tmp";
  check_is_not_in_the_way(link);
  check_is_not_in_the_way(half_done);
  if (!is_there(link) && !led_to(link.parent_path(), half_done.filename().string()).empty()) {
    rename_path(half_done, link);
  }
  if (is_there(link) && !is_link(link)) {
    const int64_t iter = Members::read(link / "trainer.json").whole("next_iter", 0, INT64_MAX);
    const std::string name = new_checkpoint_name(link.parent_path(), iter);
    make_link(half_done, name);
    rename_path(link, link.parent_path() / name);
    rename_path(half_done, link);
  }
}

void point_link(const fs::path& link, const std::string& name) {
  restore_link(link);
  replace_link(link, name);
}

void remove_left_over(const fs::path& path) {
  check_is_not_in_the_way(path);
  remove_path(path);
}

// A checkpoint as clean() sees it; of one that cannot be read nothing is known.
struct Held {
  std::string name;
  bool is_a_runs = false;
  bool has_model = true;
  Evaluation evaluation = {};
};

Held look_at(const fs::path& checkpoint) {
  return {checkpoint.filename().string(), is_a_runs(checkpoint), holds_model(checkpoint),
          evaluation_of(checkpoint)};
}

// The one of the lowest loss, which for the linked one is best_val_loss if it does not say itself.
Held best_of(const std::vector<Held>& all, const std::string& linked,
             std::optional<double> best_val_loss) {
  Held best;
  std::tuple<double, bool, bool> lowest;
  for (const Held& held : all) {
    const Evaluation& evaluation = held.evaluation;
    const std::optional<double> loss =
        !evaluation.is_known && held.name == linked ? best_val_loss : evaluation.val_loss;
    // Of equal ones rather one that says so itself, the one that is it already, the first.
    const std::tuple rank(loss.value_or(0), !evaluation.is_known, held.name != linked);
    if (held.has_model && loss && (best.name.empty() || rank < lowest)) {
      lowest = rank;
      best = held;
      best.evaluation.val_loss = loss;
    }
  }
  return best;
}

// Whether a run came further than to its first evaluation.
bool shows_training(const fs::path& metrics) {
  if (!is_there(metrics)) {
    return false;
  }
  std::string beginning(4096, '\0');
  beginning.resize(FileReader(metrics).next(beginning.data(), beginning.size()));
  return beginning.find("{\"kind\":\"iter\"") != std::string::npos;
}

// Of what makes a folder a run, the first that is there; "" without any. What a run has before
// its first checkpoint counts only in a folder that no run has held: there it is someone else's.
std::string first_sign_of_a_run(const fs::path& path, bool had_lock) {
  for (const std::string& name : had_lock ? kLinks : joined({kLinks, kFiles, kLeftOvers})) {
    if (is_there(path / name)) {
      return name;
    }
  }
  const std::vector<std::string> names = checkpoints(path);
  return !names.empty()                           ? names.back()
         : shows_training(path / "metrics.jsonl") ? "metrics.jsonl"  // its checkpoints are gone
                                                  : "";
}

// What a new run removes first; throws if that is not to be removed. `had_lock`: before this run's.
std::vector<std::string> names_to_replace(const fs::path& path, bool overwrite, bool had_lock) {
  std::vector<std::string> names = joined({kLinks, checkpoints(path), kFiles, kLeftOvers});
  for (const std::string& name : names) {
    check_is_not_in_the_way(path / name);
  }
  const std::string sign = first_sign_of_a_run(path, had_lock);
  if (!sign.empty() && !overwrite) {
    const bool can_go_on = sign == "last" || sign == "best" || parse_checkpoint_name(sign);
    throw std::runtime_error(
        fmt::format("{} holds a run already ({}); {}--overwrite replaces it, another --out_dir "
                    "leaves it",
                    shown_path(path), sign, can_go_on ? "--resume goes on with it, " : ""));
  }
  return names;
}

}  // namespace

RunFolder::RunFolder(const fs::path& path) : path_(path) {
  locks_.push_back(std::make_unique<FolderLock>(path));
}

RunFolder RunFolder::start(const fs::path& path, bool overwrite, int64_t checkpoint_bytes) {
  check_is_no_checkpoint(path);
  make_folders(path);
  const bool had_lock = is_there(path / FolderLock::kName);
  std::optional<RunFolder> held;
  if (had_lock) {
    held = RunFolder(path);  // first: while another run writes here there is nothing to look at
  }
  std::vector<std::string> names = names_to_replace(path, overwrite, had_lock);
  check_room_for(path, kMostCheckpoints, checkpoint_bytes);
  if (!held) {
    held = RunFolder(path);
    names = names_to_replace(path, overwrite, had_lock);  // another run may have come and gone
  }
  for (const std::string& name : names) {
    remove_path(path / name);
  }
  return std::move(*held);
}

RunFolder RunFolder::resume(const fs::path& path) {
  find_checkpoint(path, "last");
  return RunFolder(path);
}

RunFolder::Cleaned RunFolder::settle(std::optional<double> best_val_loss) const {
  if (::access(path_.c_str(), W_OK | X_OK) != 0) {
    fail_errno("write in", path_);
  }
  for (const std::string& name : joined({kLinks, {"settings.json", "metrics.jsonl"}, kLeftOvers})) {
    check_is_not_in_the_way(path_ / name);
  }
  restore_link(path_ / "last");
  const fs::path last = find_checkpoint(path_, "last");
  if (last.filename() != "last") {
    point_link(path_ / "last", last.filename().string());
  } else if (led_to(path_, "last").empty()) {
    std::error_code ignored;
    throw std::runtime_error(fmt::format("{} leads to {}, which is no checkpoint of this run",
                                         shown_path(last),
                                         shown_path(fs::read_symlink(last, ignored))));
  }
  return clean(best_val_loss);
}

bool RunFolder::has_checkpoint() const {
  std::error_code ignored;
  return is_known() && fs::exists(path_ / "last" / "model.safetensors", ignored);
}

RunFolder::Cleaned RunFolder::clean(std::optional<double> best_val_loss) const {
  Cleaned result;
  const auto attempt = [&result](const auto& f) {
    try {
      f();
    } catch (const std::runtime_error& e) {
      result.failure = result.failure.empty() ? e.what() : result.failure;
    }
  };
  attempt([&] { restore_link(path_ / "best"); });
  for (const std::string& name : kLeftOvers) {
    attempt([&] { remove_left_over(path_ / name); });
  }
  std::vector<Held> all;
  for (const std::string& name : checkpoints(path_)) {
    all.push_back({name});
    attempt([&] { all.back() = look_at(path_ / name); });
  }
  const std::string last = led_to(path_, "last");
  const Held best = best_of(all, led_to(path_, "best"), best_val_loss);
  result.best_val_loss = best.evaluation.val_loss;
  if (!best.name.empty() && best.name != led_to(path_, "best")) {
    attempt([&] { point_link(path_ / "best", best.name); });
  }
  const std::string linked = led_to(path_, "best");
  result.best_is_linked = linked == best.name || best.name.empty();
  for (const Held& held : all) {
    // Without `last`, any may be the one that it led to; one whose loss is not known may be better
    // than the best.
    const bool is_in_use =
        last.empty() || held.name == last || held.name == best.name || held.name == linked;
    if (!is_in_use && held.is_a_runs && (!held.has_model || held.evaluation.is_known)) {
      attempt([&] { remove_checkpoint(path_ / held.name); });
    }
  }
  return result;
}

void RunFolder::set_settings(const std::string& text) {
  settings_ = text;
  settings_are_written_ = false;
}

void RunFolder::write_settings() {
  const fs::path file = settings_file(path_);
  if (settings_.empty()) {
    return;
  }
  claim(file);
  if (!settings_are_written_ || !is_there(file)) {
    replace_file(file, settings_);
    settings_are_written_ = true;
  }
}

bool RunFolder::holds() const {
  return std::any_of(locks_.begin(), locks_.end(),
                     [this](const auto& lock) { return lock->holds(path_); });
}

bool RunFolder::is_known() const {
  return std::any_of(locks_.begin(), locks_.end(),
                     [this](const auto& lock) { return lock->is_of(path_); });
}

void RunFolder::hold() {
  if (holds()) {
    return;
  }
  const auto signs = [this] { return joined({kLinks, checkpoints(path_), kFiles}); };
  for (const std::string& name : is_known() ? std::vector<std::string>() : signs()) {
    if (is_there(path_ / name)) {
      throw std::runtime_error(
          fmt::format("{} is not the folder that this run began in, and holds {}; move it",
                      shown_path(path_), name));
    }
  }
  locks_.push_back(std::make_unique<FolderLock>(path_));
}

void RunFolder::claim(const fs::path& file) {
  hold();
  check_is_not_in_the_way(file);
}

void RunFolder::check_room(int64_t checkpoint_bytes) const {
  const auto there = static_cast<int64_t>(checkpoints(path_).size());
  check_room_for(path_, std::max(kMostCheckpoints - there, int64_t{1}), checkpoint_bytes);
}

void RunFolder::write_trace(const std::string& text) {
  claim(trace_file());
  replace_file(trace_file(), text);
}

std::string RunFolder::save(int64_t next_iter, const std::function<void(const fs::path&)>& write) {
  hold();
  for (const char* name : {"last", "last.tmp"}) {
    check_is_not_in_the_way(path_ / name);  // before there is a checkpoint that it cannot lead to
  }
  const fs::path pending = path_ / kPending;
  remove_left_over(pending);
  std::error_code error;
  if (!fs::create_directory(pending, error)) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {}: {}", shown_path(pending), error.message()));
  }
  const std::string name = new_checkpoint_name(path_, next_iter);
  std::string failure;
  try {
    write(pending);
    sync_folder(pending);
    try {
      write_settings();
    } catch (const std::runtime_error& e) {
      failure = e.what();  // hinders no checkpoint
    }
    rename_path(pending, path_ / name);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(pending, ignored);  // a full disk gets its room back
    throw;
  }
  point_link(path_ / "last", name);
  return failure;
}

fs::path settings_file(const fs::path& path) {
  return path / "settings.json";
}

}  // namespace chargrad::train
