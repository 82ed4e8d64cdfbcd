// What a checkpoint holds besides the model: where the run is, and the optimizer's moments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "engine/generator.h"
#include "train/optim/adamw.h"

namespace chargrad::train {

struct TrainerState {
  int64_t next_iter = 0;
  bool eval_done = false;          // of next_iter
  std::optional<double> val_loss;  // of that evaluation
  std::optional<double> best_val_loss;
  int64_t skipped = 0;         // updates passed over, as --skip_nonfinite counts them
  std::vector<int64_t> batch;  // start offsets of the training batch that is drawn already
};

// Writes trainer.json (the state, the optimizer's steps, the generator) and trainer.safetensors
// (the moments) into `folder`.
void write_trainer(const std::filesystem::path& folder, const TrainerState& state,
                   const optim::AdamW& optimizer, const Generator& generator);

// Reads them back into the optimizer and the generator; moments are converted to the dtype of the
// optimizer's. Each batch offset must be in [0, windows). Throws std::runtime_error naming the
// file and what is wrong, before anything is changed.
TrainerState read_trainer(const std::filesystem::path& folder, int64_t windows,
                          optim::AdamW& optimizer, Generator& generator);

}  // namespace chargrad::train
