// Every setting of train and of sample, under nanoGPT's names, each described in one list.
#pragma once

#include <cstdint>
#include <string>

#include "train/setting.h"

namespace chargrad::train {

// The values here are nanoGPT's recipe for a CPU, as in configs/cpu.json.
struct TrainSettings {
  std::string data;
  std::string out_dir = "out";
  std::string config;
  std::string preset = "cpu";
  std::string init_from = "scratch";
  bool resume = false;  // After resolving, the same as init_from == "resume".
  bool overwrite = false;

  std::string model = "gpt";
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  int64_t head_size = 128;
  std::string attention_scale = "sqrt_dk";
  int64_t block_size = 64;
  bool bias = false;
  double dropout = 0.0;

  int64_t batch_size = 12;
  int64_t gradient_accumulation_steps = 1;
  int64_t max_iters = 2000;
  double max_seconds = 0.0;
  double learning_rate = 1e-3;
  bool decay_lr = true;
  int64_t warmup_iters = 100;
  int64_t lr_decay_iters = 2000;
  double min_lr = 1e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double grad_clip = 1.0;
  int64_t skip_nonfinite = 0;

  int64_t eval_interval = 250;
  int64_t eval_iters = 20;
  bool eval_only = false;
  int64_t log_interval = 1;
  double checkpoint_minutes = 5.0;
  int64_t profile = 0;

  int64_t seed = 1337;
  std::string dtype = "auto";  // After resolving, what it stands for here.
  int64_t threads = 0;
  std::string device = "cpu";
  bool compile = false;
};

struct SampleSettings {
  std::string out_dir = "out";
  std::string checkpoint;  // best or last; empty: best, or last where there is no best.
  std::string init_from = "resume";

  std::string prompt;  // A text or FILE:PATH.
  int64_t num_samples = 10;
  int64_t max_new_tokens = 500;
  double temperature = 0.8;
  int64_t top_k = 200;
  double top_p = 1.0;

  int64_t seed = 1337;
  std::string dtype = "auto";  // After resolving, what it stands for here.
  int64_t threads = 0;
  std::string device = "cpu";
  bool compile = false;
  bool verbose = false;
};

// The lists point into `settings`.
SettingList setting_list(TrainSettings& settings);
SettingList setting_list(SampleSettings& settings);

// Lines "Model: model=gpt n_layer=4 ..." of every setting, one line a group.
std::string settings_text(const SettingList& settings);

// The object that RUN/settings.json keeps: every setting, doubles so that they read back exactly.
Json to_json(const TrainSettings& settings);

// The settings of a run from that object, besides those that belong to one call. Unknown keys are
// left alone. Throws std::runtime_error opening with `where` for a missing key or a bad value.
TrainSettings train_settings_from_json(const Json& object, const std::string& where);

}  // namespace chargrad::train
