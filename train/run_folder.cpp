#include "train/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "train/checkpoints.h"
#include "train/console.h"
#include "train/json_file.h"

namespace chargrad::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPending = "pending-checkpoint";  // a checkpoint on its way, or out

// What a run that came to a checkpoint has, in the order in which to remove it: a run of which
// only a part is left is not to be taken for a whole one.
const std::vector<std::string> kLinks{"last", "best"};
// The rest, besides the lock.
const std::vector<std::string> kOthers{"settings.json",  "metrics.jsonl", "settings.json.tmp",
                                       "last.tmp",       "best.tmp",      "trace.json",
                                       "trace.json.tmp", kPending};

// Throws where something else than a link has its name, which a copy that follows links makes.
void check_is_link(const fs::path& link) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(link, error);
  if (!fs::exists(status) || fs::is_symlink(status)) {
    return;
  }
  std::string advice = "move it";
  if (is_whole(link)) {
    const Members trainer = Members::read(link / "trainer.json");
    const std::string name = checkpoint_name({trainer.whole("next_iter", 0, INT64_MAX), 1});
    const bool is_taken = is_there(link.parent_path() / name);
    const fs::path aside =
        link.parent_path() / (is_taken ? link.filename().string() + ".copy" : name);
    advice = fmt::format("to go on: mv {0} {1} && ln -s {2} {0}", shell_word(link.string()),
                         shell_word(aside.string()), name);
  }
  throw std::runtime_error(
      fmt::format("{} is not a link, as a run's is; {}", shown_path(link), advice));
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

// Whether what has a name of a run's is one: a link, a folder of nothing but a checkpoint's files,
// a file that begins as a run's does. All else of that name is someone else's and stays.
bool is_a_runs(const fs::path& path) {
  static const std::set<std::string> links{"last", "best", "last.tmp", "best.tmp"};
  const std::string name = path.filename().string();
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (error) {
    fail_reading(path, error);
  }
  if (links.count(name) != 0) {
    return fs::is_symlink(status);
  }
  if (name == kPending || parse_checkpoint_name(name)) {
    const std::vector<std::string> held =
        fs::is_directory(status) ? names_in(path) : std::vector<std::string>{name};
    return std::all_of(held.begin(), held.end(),
                       [](const std::string& part) { return is_checkpoint_file(part); });
  }
  if (!fs::is_regular_file(status)) {
    return false;
  }
  return name == "settings.json"   ? begins_with(path, "{\n  \"version\":")
         : name == "metrics.jsonl" ? begins_with(path, "{\"kind\":")
         : name == "trace.json"    ? begins_with(path, "{\"displayTimeUnit\":")
                                   : true;
}

// Of what makes a folder a run, the first that is there; "" without any. What a run has before
// its first checkpoint counts only in a folder that no run has held: there it is someone else's.
std::string first_sign_of_a_run(const fs::path& path) {
  std::vector<std::string> signs = kLinks;
  if (!is_there(path / FolderLock::kName)) {
    signs.insert(signs.end(), kOthers.begin(), kOthers.end());
  }
  for (const std::string& name : signs) {
    if (is_there(path / name)) {
      return name;
    }
  }
  const std::vector<std::string> names = checkpoints(path);
  return names.empty() ? std::string() : names.back();
}

}  // namespace

RunFolder::RunFolder(const fs::path& path)
    : path_(path), lock_(std::make_unique<FolderLock>(path)) {}

RunFolder RunFolder::start(const fs::path& path, bool overwrite) {
  check_is_no_checkpoint(path);
  make_folders(path);
  std::optional<RunFolder> held;
  if (is_there(path / FolderLock::kName)) {
    held = RunFolder(path);  // first: while another run writes here there is nothing to look at
  }
  std::vector<std::string> names = kLinks;
  const std::vector<std::string> old = checkpoints(path);
  names.insert(names.end(), old.begin(), old.end());
  names.insert(names.end(), kOthers.begin(), kOthers.end());
  for (const std::string& name : names) {
    if (is_there(path / name) && !is_a_runs(path / name)) {
      throw std::runtime_error(
          fmt::format("{} is in the way and no part of a run; move it, or use another --out_dir",
                      shown_path(path / name)));
    }
  }
  const std::string sign = first_sign_of_a_run(path);
  if (!sign.empty() && !overwrite) {
    const bool can_go_on = std::find(kOthers.begin(), kOthers.end(), sign) == kOthers.end();
    throw std::runtime_error(
        fmt::format("{} holds a run already ({}); {}--overwrite replaces it, another --out_dir "
                    "leaves it",
                    shown_path(path), sign, can_go_on ? "--resume goes on with it, " : ""));
  }
  RunFolder folder = held ? std::move(*held) : RunFolder(path);
  for (const std::string& name : names) {
    remove_path(path / name);
  }
  return folder;
}

RunFolder RunFolder::resume(const fs::path& path) {
  find_checkpoint(path, "last");
  return RunFolder(path);
}

std::optional<double> RunFolder::settle(std::optional<double> best_val_loss) const {
  if (::access(path_.c_str(), W_OK | X_OK) != 0) {
    fail_errno("write in", path_);
  }
  for (const std::string& link : kLinks) {
    check_is_link(path_ / link);
  }
  const fs::path last = find_checkpoint(path_, "last");
  if (last.filename() != "last") {
    replace_link(path_ / "last", last.filename().string());
  } else if (led_to(path_, "last").empty()) {
    std::error_code ignored;
    throw std::runtime_error(fmt::format("{} leads to {}, which is no checkpoint of this run",
                                         shown_path(last),
                                         shown_path(fs::read_symlink(last, ignored))));
  }
  return clean(best_val_loss);
}

bool RunFolder::has_checkpoint() const {
  return is_there(path_ / "last" / "model.safetensors");
}

std::optional<double> RunFolder::point_best(std::optional<double> best_val_loss) const {
  const std::string linked = led_to(path_, "best");
  std::string best;
  std::optional<double> lowest;
  for (const std::string& name : checkpoints(path_)) {
    if (!is_whole(path_ / name)) {
      continue;
    }
    const Evaluation evaluation = evaluation_of(path_ / name);
    const std::optional<double> loss =
        !evaluation.is_known && name == linked ? best_val_loss : evaluation.val_loss;
    if (loss && (!lowest || *loss < *lowest || (*loss == *lowest && name == linked))) {
      lowest = loss;
      best = name;
    }
  }
  if (best != linked && !best.empty()) {
    replace_link(path_ / "best", best);
  }
  return lowest;
}

std::optional<double> RunFolder::clean(std::optional<double> best_val_loss) const {
  for (const char* name :
       {kPending, "settings.json.tmp", "last.tmp", "best.tmp", "trace.json.tmp"}) {
    remove_path(path_ / name);
  }
  for (const std::string& link : kLinks) {
    check_is_link(path_ / link);
  }
  best_val_loss = point_best(best_val_loss);
  const std::string last = led_to(path_, "last"), best = led_to(path_, "best");
  if (last.empty()) {
    return best_val_loss;  // any checkpoint may be the one that it led to
  }
  std::exception_ptr failure;
  for (const std::string& name : checkpoints(path_)) {
    const fs::path checkpoint = path_ / name;
    // A whole one that may be better than `best` stays.
    const bool is_left_over = name != last && name != best && is_a_runs(checkpoint) &&
                              (!is_whole(checkpoint) || evaluation_of(checkpoint).is_known);
    try {
      if (is_left_over) {
        remove_path(checkpoint);
      }
    } catch (const std::runtime_error&) {
      failure = std::current_exception();  // told when the others are gone
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return best_val_loss;
}

void RunFolder::set_settings(const std::string& text) {
  settings_ = text;
  settings_are_written_ = false;
}

void RunFolder::write_settings() {
  if (!settings_are_written_) {
    replace_file(settings_file(path_), settings_);
    settings_are_written_ = true;
  }
}

// Where the folder is no longer the one that was locked, locks the one that is there.
void RunFolder::hold() {
  if (lock_->holds(path_)) {
    return;
  }
  lock_ = std::make_unique<FolderLock>(path_);
  settings_are_written_ = settings_.empty();
}

void RunFolder::save(int64_t next_iter, const std::function<void(const fs::path&)>& write) {
  hold();
  const fs::path pending = path_ / kPending;
  remove_path(pending);
  std::error_code error;
  if (!fs::create_directory(pending, error)) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {}: {}", shown_path(pending), error.message()));
  }
  CheckpointName name{next_iter, 1};
  try {
    write(pending);
    sync_folder(pending);
    write_settings();
    if (checkpoint_name(name) == led_to(path_, "best") &&
        !may_replace(pending, path_ / checkpoint_name(name))) {
      ++name.turn;
    }
    while (!replace_folder(pending, path_ / checkpoint_name(name))) {
      ++name.turn;
    }
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(pending, ignored);  // a full disk gets its room back
    throw;
  }
  replace_link(path_ / "last", checkpoint_name(name));
}

fs::path settings_file(const fs::path& path) {
  return path / "settings.json";
}

}  // namespace chargrad::train
