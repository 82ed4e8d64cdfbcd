// RUN/: settings.json, metrics.jsonl, ckpt-NNNNNN/, and the links last and best. A checkpoint
// appears whole or not at all, and a crash at any point leaves the one before.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "train/files.h"

namespace chargrad::train {

// The folder of one run, held by this process until destroyed.
class RunFolder {
 public:
  // Makes the folder, also its parents, for a new run. Throws where it holds a run already unless
  // `overwrite`, which removes that run's files and no others, and where it cannot be written.
  static RunFolder start(const std::filesystem::path& path, bool overwrite);
  // Opens the folder of a run to go on with, and removes what a crash left behind.
  static RunFolder resume(const std::filesystem::path& path);

  std::filesystem::path settings_file() const { return path_ / "settings.json"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  const std::filesystem::path& path() const { return path_; }

  // Lets `write` fill a new folder, waits until it is on the disk, gives it the name
  // ckpt-NNNNNN of the iteration that comes next, and points `last`, and with is_best also `best`,
  // to it. A checkpoint that neither names afterwards is removed.
  void save(int64_t next_iter, bool is_best,
            const std::function<void(const std::filesystem::path&)>& write);

 private:
  explicit RunFolder(const std::filesystem::path& path);
  void remove_unlinked() const;

  std::filesystem::path path_;
  std::unique_ptr<FolderLock> lock_;
};

// The checkpoint that `name` ("best", "last", or "" for best and else last) leads to in the run
// folder `path`. Throws std::runtime_error where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const std::string& name);

}  // namespace chargrad::train
