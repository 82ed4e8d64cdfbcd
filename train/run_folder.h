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
  // `overwrite`, which removes that run's files and no others; where a name of a run's is taken by
  // something else; in a checkpoint; and where the folder cannot be written. A run that came to no
  // checkpoint is no run.
  static RunFolder start(const std::filesystem::path& path, bool overwrite);
  // Opens the folder of a run to go on with, and changes nothing: settle() does, when the
  // checkpoint was read.
  static RunFolder resume(const std::filesystem::path& path);

  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path trace_file() const { return path_ / "trace.json"; }
  const std::filesystem::path& path() const { return path_; }

  // The text of settings.json, which the next save or write_settings() writes, in one step.
  void set_settings(const std::string& text);
  void write_settings();

  // Lets `write` fill a new folder, waits until it is on the disk, gives it the name
  // ckpt-NNNNNN of the iteration that comes next, and points `last`, and with is_best also `best`,
  // to it. Where it throws, `last` and `best` lead to what they did, or one of them to the new
  // checkpoint. A run folder that was removed and made anew since is taken and gets the settings.
  void save(int64_t next_iter, bool is_best,
            const std::function<void(const std::filesystem::path&)>& write);

  // Whether `last` leads to a checkpoint: someone may have removed the folder.
  bool has_checkpoint() const;

  // Whether `best` leads to a checkpoint.
  bool has_best() const;

  // Points `last` to find_checkpoint's checkpoint if it leads nowhere, `best` too if that is the
  // only one and there is no link, and cleans. has_best: the run has had a best checkpoint. Throws,
  // and changes nothing, where it is not clear which one that is.
  void settle(bool has_best) const;

  // Removes the checkpoints that neither link leads to, and what a crash or a failure left; no
  // checkpoint where `last`, or with has_best `best`, leads nowhere. Throws where one is no link.
  void clean(bool has_best) const;

 private:
  explicit RunFolder(const std::filesystem::path& path);
  void hold();

  std::filesystem::path path_;
  std::unique_ptr<FolderLock> lock_;
  std::string settings_;
  bool settings_are_written_ = true;
};

// The settings.json of the run folder `path`.
std::filesystem::path settings_file(const std::filesystem::path& path);

// The checkpoint that `name` ("best", "last", or "" for best and else last) leads to in the run
// folder `path`. Without a link `last` it is the newest checkpoint: a crash may come between the
// first checkpoint and its link. Throws std::runtime_error where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const std::string& name);

}  // namespace chargrad::train
