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

// The iteration of a checkpoint's name, "ckpt-000500", and of names that say no more its turn:
// "ckpt-000500-2" was written while the first was there and the file system could not exchange
// them, or the first was the best of all.
struct CheckpointName {
  int64_t iter;
  int64_t turn;

  bool operator<(const CheckpointName& other) const;
};

std::string checkpoint_name(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_name(std::string_view name);

// Whether a checkpoint has a file of that name.
bool is_checkpoint_file(const std::string& name);

// Names of the checkpoints in the folder, oldest first.
std::vector<std::string> checkpoints(const std::filesystem::path& path);

// Whether all files of a checkpoint are there: one that is being removed has no more all of them.
bool is_whole(const std::filesystem::path& checkpoint);

// What the trainer.json of a whole checkpoint says of the evaluation of its model.
struct Evaluation {
  bool is_known = false;           // not where the text makes no sense
  std::optional<double> val_loss;  // known, and none: the model was not evaluated
};

Evaluation evaluation_of(const std::filesystem::path& checkpoint);

// The name of the checkpoint in the folder `path` that its link leads to, however that is written;
// "" if it leads to none.
std::string led_to(const std::filesystem::path& path, const std::string& link);

// Whether the new checkpoint may take the place of the best one, which is of the same iteration: a
// run that went back to before it comes to other numbers.
bool may_replace(const std::filesystem::path& pending, const std::filesystem::path& best);

// Throws where a checkpoint is given for the folder of its run.
void check_is_no_checkpoint(const std::filesystem::path& path);

// The checkpoint that `name` ("best", "last", or "" for best and else last) leads to in the run
// folder `path`. Without a link `last` it is the newest checkpoint: a crash may come between the
// first checkpoint and its link. Throws where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const std::string& name);

}  // namespace chargrad::train
