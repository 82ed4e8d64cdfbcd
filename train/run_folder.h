// RUN/: settings.json, metrics.jsonl, ckpt-NNNNNN/, and the links last and best. A checkpoint
// appears whole or not at all, and a crash at any point leaves the one before. In a copy of a run
// that was made without links, a checkpoint has the place of each: it becomes one of the others.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/files.h"

namespace chargrad::train {

// The folder of one run, held by this process until destroyed.
class RunFolder {
 public:
  // Makes the folder, also its parents, for a new run. Throws where it holds a run already unless
  // `overwrite`, which removes that run's files and no others; where a name of a run's is taken by
  // something else; in a checkpoint; where the folder cannot be written; and where its disk has
  // no room for three checkpoints of `checkpoint_bytes` beside what is there: `best` and `last`
  // stay until the next is whole. A run that came to no checkpoint is no run.
  static RunFolder start(const std::filesystem::path& path, bool overwrite,
                         int64_t checkpoint_bytes = 0);
  // Opens the folder of a run to go on with, and changes nothing: settle() does, when the
  // checkpoint was read.
  static RunFolder resume(const std::filesystem::path& path);

  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path trace_file() const { return path_ / "trace.json"; }
  const std::filesystem::path& path() const { return path_; }

  // Throws unless the folder is this run's, and the file in it, if it is there: a folder that was
  // made anew since the run began, and holds no run, becomes it.
  void claim(const std::filesystem::path& file);

  // As start(), in a run that goes on: for those of the three that are not there yet.
  void check_room(int64_t checkpoint_bytes) const;

  void write_trace(const std::string& text);

  // The text of settings.json, which the next save or write_settings() writes, in one step, and
  // each later one again where the file is gone. Throws where someone else's has the name.
  void set_settings(const std::string& text);
  void write_settings();

  // Lets `write` fill a new folder, waits until it is on the disk, gives it the name
  // ckpt-NNNNNN of the iteration that comes next, and points `last` to it; clean() comes after.
  // Where it throws, `last` leads to what it did, or to the new checkpoint. Returns why the
  // settings could not be written; "".
  std::string save(int64_t next_iter,
                   const std::function<void(const std::filesystem::path&)>& write);

  // Whether `last` leads to a checkpoint: someone may have removed or exchanged the folder.
  bool has_checkpoint() const;

  struct Cleaned {
    std::optional<double> best_val_loss;  // of the best checkpoint; none where none was evaluated
    bool best_is_linked = true;           // `best` leads to it
    std::string failure;                  // the first thing that could not be done; ""
  };

  // Points `best` to the checkpoint of the lowest validation loss, as their trainer.json tell it;
  // best_val_loss is that of the one that `best` leads to, if its file does not say. Removes the
  // other checkpoints but `last`'s, and what a crash or a failure left; nothing that holds a model
  // whose loss is not known. Does what it can, and throws where the folder cannot be read.
  Cleaned clean(std::optional<double> best_val_loss) const;

  // Points `last` to find_checkpoint's checkpoint if it leads nowhere, and cleans. Throws, and
  // changes nothing, where nothing can be written, where `last` leads out of the folder, and where
  // a name of a run's is taken by something else.
  Cleaned settle(std::optional<double> best_val_loss) const;

 private:
  explicit RunFolder(const std::filesystem::path& path);
  bool holds() const;
  bool is_known() const;  // the folder, whatever became of its lock
  void hold();

  std::filesystem::path path_;
  std::vector<std::unique_ptr<FolderLock>> locks_;  // of all folders that were the run's
  std::string settings_;
  bool settings_are_written_ = true;
};

// The settings.json of the run folder `path`.
std::filesystem::path settings_file(const std::filesystem::path& path);

}  // namespace chargrad::train
