#include "train/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "train/console.h"

namespace chargrad::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPending = "pending-checkpoint";  // a checkpoint on its way, or out

// The iteration of a checkpoint's name, "ckpt-000500", and of names that say no more its turn:
// "ckpt-000500-2" was written while the first was there and the file system could not exchange
// them.
struct CheckpointName {
  int64_t iter;
  int64_t turn;

  bool operator<(const CheckpointName& other) const {
    return std::tie(iter, turn) < std::tie(other.iter, other.turn);
  }
};

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
                      parsed.turn >= 1 && checkpoint_name(parsed) == name;
  return is_one ? std::optional<CheckpointName>(parsed) : std::nullopt;
}

// What a run that came to a checkpoint has, in the order in which to remove it: a run of which
// only a part is left is not to be taken for a whole one.
const std::vector<std::string> kLinks{"last", "best"};
// The rest, besides the lock.
const std::vector<std::string> kOthers{"settings.json",  "metrics.jsonl", "settings.json.tmp",
                                       "last.tmp",       "best.tmp",      "trace.json",
                                       "trace.json.tmp", kPending};

[[noreturn]] void fail_reading(const fs::path& path, const std::error_code& error) {
  throw std::runtime_error(fmt::format("cannot read {}: {}", shown_path(path), error.message()));
}

// Names of what is in the folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    fail_reading(folder, error);
  }
  return names;
}

// Names of the checkpoints in the folder, oldest first.
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

// Whether there is a folder at the end of the link.
bool leads_somewhere(const fs::path& link) {
  std::error_code error;
  return fs::is_directory(link, error);
}

// Throws where something else than a link has its name.
void check_is_link(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (target.empty() && error == std::errc::invalid_argument) {
    throw std::runtime_error(
        fmt::format("{} is not a link, as a run's is: the folder was copied without its links; "
                    "make it one again, as by ln -s ckpt-NNNNNN last",
                    shown_path(link)));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw std::runtime_error(
        fmt::format("cannot read the link {}: {}", shown_path(link), error.message()));
  }
}

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {}: {}", shown_path(path), error.message()));
  }
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// Or is cut off before it differs.
bool begins_with(const fs::path& file, std::string_view beginning) {
  std::string bytes(beginning.size(), '\0');
  bytes.resize(FileReader(file).next(bytes.data(), bytes.size()));
  return bytes == beginning.substr(0, bytes.size());
}

// Throws where a checkpoint is given for the folder of its run.
void check_is_no_checkpoint(const fs::path& path) {
  if (is_there(path / "model.safetensors") && is_there(path / "trainer.json")) {
    throw std::runtime_error(
        fmt::format("{} is a checkpoint, not the folder of a run, which would be {}",
                    shown_path(path), shown_path(fs::weakly_canonical(path).parent_path())));
  }
}

// Whether what has a name of a run's is one: a link, a folder of nothing but a checkpoint's files,
// a file that begins as a run's does. All else of that name is someone else's and stays.
bool is_a_runs(const fs::path& path) {
  static const std::set<std::string> links{"last", "best", "last.tmp", "best.tmp"};
  static const std::set<std::string> parts{"model.safetensors", "config.json", "vocab.json",
                                           "trainer.safetensors", "trainer.json"};
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
                       [](const std::string& part) { return parts.count(part) != 0; });
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

void RunFolder::settle(bool has_best) const {
  const fs::path last = find_checkpoint(path_, "last");
  const std::vector<std::string> names = checkpoints(path_);
  const bool is_alone = names.size() == 1;
  if (has_best && !is_alone && !leads_somewhere(path_ / "best")) {
    throw std::runtime_error(
        fmt::format("{} leads to no checkpoint, and one of {} may be the best; point it there, as "
                    "by ln -sfn {} {}",
                    shown_path(path_ / "best"), fmt::join(names, ", "), names.back(),
                    shell_word((path_ / "best").string())));
  }
  if (last.filename() != "last") {
    // A crash before the first checkpoint had its links.
    if (is_alone && !is_there(path_ / "best")) {
      replace_link(path_ / "best", last.filename().string());
    }
    replace_link(path_ / "last", last.filename().string());
  }
  clean(false);
}

bool RunFolder::has_checkpoint() const {
  return is_there(path_ / "last" / "model.safetensors");
}

bool RunFolder::has_best() const {
  return leads_somewhere(path_ / "best");
}

void RunFolder::clean(bool has_best) const {
  for (const char* name :
       {kPending, "settings.json.tmp", "last.tmp", "best.tmp", "trace.json.tmp"}) {
    remove_path(path_ / name);
  }
  for (const std::string& link : kLinks) {
    check_is_link(path_ / link);
  }
  if (!leads_somewhere(path_ / "last") || (has_best && !leads_somewhere(path_ / "best"))) {
    return;  // any checkpoint may be the one that it led to
  }
  // Whether one of the links leads there, however it is written.
  const auto is_kept = [this](const fs::path& checkpoint) {
    return std::any_of(kLinks.begin(), kLinks.end(), [&](const std::string& link) {
      std::error_code error;
      return fs::equivalent(path_ / link, checkpoint, error);
    });
  };
  for (const std::string& name : checkpoints(path_)) {
    if (!is_kept(path_ / name) && is_a_runs(path_ / name)) {
      remove_path(path_ / name);
    }
  }
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

void RunFolder::save(int64_t next_iter, bool is_best,
                     const std::function<void(const fs::path&)>& write) {
  hold();
  write_settings();
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
    while (!replace_folder(pending, path_ / checkpoint_name(name))) {
      ++name.turn;
    }
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(pending, ignored);  // a full disk gets its room back
    throw;
  }
  // best before last: a run that stops in between goes on from the older one, and finds the
  // better loss again.
  if (is_best) {
    replace_link(path_ / "best", checkpoint_name(name));
  }
  replace_link(path_ / "last", checkpoint_name(name));
}

fs::path settings_file(const fs::path& path) {
  return path / "settings.json";
}

fs::path find_checkpoint(const fs::path& path, const std::string& name) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw std::runtime_error(fmt::format("cannot open the run folder {}: {}", shown_path(path),
                                         error ? error.message() : "not a folder"));
  }
  const std::vector<std::string> names =
      name.empty() ? std::vector<std::string>{"best", "last"} : std::vector<std::string>{name};
  for (const std::string& candidate : names) {
    if (fs::is_directory(path / candidate, error)) {
      return path / candidate;
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      throw std::runtime_error(
          fmt::format("cannot open {}: {}", shown_path(path / candidate), error.message()));
    }
  }
  const std::vector<std::string> unlinked = checkpoints(path);
  if (name != "best" && !unlinked.empty()) {
    return path / unlinked.back();
  }
  check_is_no_checkpoint(path);
  throw std::runtime_error(fmt::format("{} holds no checkpoint: {} is not there", shown_path(path),
                                       fmt::join(names, " or ")));
}

}  // namespace chargrad::train
