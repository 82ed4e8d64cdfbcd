#include "train/run_folder.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>

namespace chargrad::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPending = "pending-checkpoint";  // a checkpoint on its way

bool is_checkpoint_name(const std::string& name) {
  return name.rfind("ckpt-", 0) == 0 && name.size() > 5 &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

// What a run keeps in its folder, besides the lock.
bool belongs_to_run(const std::string& name) {
  static const std::set<std::string> names{
      "settings.json", "settings.json.tmp", "metrics.jsonl", "last", "last.tmp",
      "best",          "best.tmp",          kPending};
  return names.count(name) > 0 || is_checkpoint_name(name);
}

std::vector<fs::path> run_files(const fs::path& path) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (belongs_to_run(entry.path().filename().string())) {
      files.push_back(entry.path());
    }
  }
  return files;
}

// The name that a link in the folder holds, "" without one.
std::string link_target(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::string() : target.string();
}

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {}: {}", path.string(), error.message()));
  }
  if (!fs::is_directory(path)) {
    throw std::runtime_error(fmt::format("{} is not a folder", path.string()));
  }
}

}  // namespace

RunFolder::RunFolder(const fs::path& path)
    : path_(path), lock_(std::make_unique<FolderLock>(path)) {}

RunFolder RunFolder::start(const fs::path& path, bool overwrite) {
  make_folders(path);
  RunFolder folder(path);
  const std::vector<fs::path> files = run_files(path);
  if (!files.empty() && !overwrite) {
    throw std::runtime_error(
        fmt::format("{} holds a run already ({}); --resume goes on with it, --overwrite replaces "
                    "it, another --out_dir leaves it",
                    path.string(), files.front().filename().string()));
  }
  for (const fs::path& file : files) {
    fs::remove_all(file);
  }
  return folder;
}

RunFolder RunFolder::resume(const fs::path& path) {
  find_checkpoint(path, "last");
  RunFolder folder(path);
  fs::remove_all(path / kPending);
  folder.remove_unlinked();
  return folder;
}

void RunFolder::remove_unlinked() const {
  const std::set<std::string> kept{link_target(path_ / "last"), link_target(path_ / "best")};
  for (const fs::path& file : run_files(path_)) {
    const std::string name = file.filename().string();
    if (is_checkpoint_name(name) && kept.count(name) == 0) {
      fs::remove_all(file);
    }
  }
}

void RunFolder::save(int64_t next_iter, bool is_best,
                     const std::function<void(const fs::path&)>& write) {
  const fs::path pending = path_ / kPending;
  fs::remove_all(pending);
  if (!fs::create_directory(pending)) {
    throw std::runtime_error(fmt::format("cannot make the folder {}", pending.string()));
  }
  try {
    write(pending);
    sync_folder(pending);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(pending, ignored);  // a full disk gets its room back
    throw;
  }
  const std::string name = fmt::format("ckpt-{:06}", next_iter);
  if (replace_folder(pending, path_ / name)) {
    fs::remove_all(pending);  // the one that had the name before
  }
  // best before last: a run that stops in between goes on from the older one, and finds the
  // better loss again.
  if (is_best) {
    replace_link(path_ / "best", name);
  }
  replace_link(path_ / "last", name);
  remove_unlinked();
}

fs::path find_checkpoint(const fs::path& path, const std::string& name) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw std::runtime_error(fmt::format("cannot open the run folder {}: {}", path.string(),
                                         error ? error.message() : "not a folder"));
  }
  const std::vector<std::string> names =
      name.empty() ? std::vector<std::string>{"best", "last"} : std::vector<std::string>{name};
  for (const std::string& candidate : names) {
    if (fs::is_directory(path / candidate, error)) {
      return path / candidate;
    }
  }
  throw std::runtime_error(fmt::format("{} holds no checkpoint: {} is not there", path.string(),
                                       fmt::join(names, " or ")));
}

}  // namespace chargrad::train
