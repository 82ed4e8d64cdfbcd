// From the command line to the settings that hold: defaults, then the preset, then the file of
// --config, then the flags; later layers win. On --resume the run's own settings stand in for the
// first two. Refuses values out of range and settings that contradict each other.
//
// What nobody gives follows another setting: lr_decay_iters is max_iters, min_lr is
// learning_rate / 10, head_size is n_embd. A preset's value counts as given for head_size only.
// --dtype=auto becomes bfloat16 where the CPU has instructions for its products, else float32; on
// --resume it is the run's.
#pragma once

#include <functional>
#include <string>

#include "train/args.h"
#include "train/settings.h"

namespace chargrad::train {

const Program& train_program();
const Program& sample_program();

// The settings of the run in a folder, as train_settings_from_json reads them.
using RunReader = std::function<TrainSettings(const std::string& out_dir)>;

// Settings of a call without --help or --version. With --resume or --init_from=resume calls
// `read_run` and leaves `resume` true. Throws UsageError, also where a setting that the run fixed
// (see OnResume) is given another value, and std::runtime_error for a config file that cannot be
// read or is not JSON.
TrainSettings resolve_train(const Arguments& arguments, const RunReader& read_run);

SampleSettings resolve_sample(const Arguments& arguments);

// Throws UsageError for settings that contradict each other.
void check_settings(const TrainSettings& settings);

}  // namespace chargrad::train
