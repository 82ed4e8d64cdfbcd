// The checkpoints in a run's folder and what leads to them: ckpt-NNNNNN/, each with a model and the
// trainer's state, and the links last and best. Errors are std::runtime_error with the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chargrad::train {

// The iteration of a checkpoint's name, "ckpt-000500", and of those of one iteration its turn:
// "ckpt-000500-2" was written while the first was there, as after an evaluation that was still due.
struct CheckpointName {
  int64_t iter;
  int64_t turn;

  bool operator<(const CheckpointName& other) const;
};

std::string checkpoint_name(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_name(std::string_view name);

// The name for a checkpoint of that iteration beside those in the folder: its turn is the last.
std::string new_checkpoint_name(const std::filesystem::path& path, int64_t iter);

// Names of the checkpoints in the folder, oldest first.
std::vector<std::string> checkpoints(const std::filesystem::path& path);

// Whether `path` is a folder that holds nothing but files of a checkpoint; and all of them.
bool holds_only_checkpoint_files(const std::filesystem::path& path);
bool is_whole_checkpoint(const std::filesystem::path& path);

// Whether there is a model to lose: a file that is not empty, or a link that leads nowhere now.
bool holds_model(const std::filesystem::path& checkpoint);

// Removes a checkpoint, the model first: what a crash leaves of it is worth nothing.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// What trainer.json says of the evaluation of a checkpoint's model.
struct Evaluation {
  bool is_known = false;           // not where there is no such file, or its text makes no sense
  std::optional<double> val_loss;  // known, and none: the model was not evaluated
};

Evaluation evaluation_of(const std::filesystem::path& checkpoint);

// The name of the checkpoint in the folder `path` that its link leads to, however that is written;
// "" if it leads to none.
std::string led_to(const std::filesystem::path& path, const std::string& link);

// Throws where a checkpoint is given for the folder of its run.
void check_is_no_checkpoint(const std::filesystem::path& path);

// The checkpoint that `name` ("best", "last", or "" for best and else last) leads to in the run
// folder `path`. Without `last` it is the one that last.tmp leads to, or the newest that holds a
// model: a crash may come before a checkpoint's link. Throws where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const std::string& name);

}  // namespace chargrad::train
