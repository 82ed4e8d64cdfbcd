// A text, settings and runs for the tests of the loop.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "tests/temp_folder.h"
#include "train/checkpoints.h"
#include "train/safetensors.h"
#include "train/trainer.h"

namespace chargrad::train {

namespace fs = std::filesystem;

inline std::string some_text() {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += "line " + std::to_string(i * 7919 % 1000) + " of a text\n";
  }
  return text;
}

inline TrainSettings tiny() {
  TrainSettings s;
  s.n_layer = 2;
  s.n_head = 2;
  s.n_embd = 16;
  s.block_size = 8;
  s.batch_size = 4;
  s.gradient_accumulation_steps = 3;
  s.dropout = 0.2;
  s.max_iters = 12;
  s.lr_decay_iters = 12;
  s.warmup_iters = 3;
  s.eval_interval = 5;
  s.eval_iters = 2;
  s.dtype = "float32";
  return s;
}

// Losses by iteration, as they were reported.
struct Log {
  std::map<int64_t, double> iters;
  std::vector<int64_t> evals;

  TrainEvents events(const std::function<int()>& stop = {}) {
    TrainEvents e;
    e.on_iter = [this](const IterMetrics& m) { iters[m.iter] = m.loss; };
    e.on_eval = [this](const EvalMetrics& m) { evals.push_back(m.iter); };
    e.stop_signal = stop;
    return e;
  }
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() : dataset(data::Dataset::load(dir.write("text", some_text()))) {}

  fs::path run(const std::string& name) const { return dir.path(name); }

  StopReason train(const std::string& name, const TrainSettings& s, Log& log,
                   const std::function<int()>& stop = {}) {
    RunFolder folder = RunFolder::start(run(name), false);
    return Trainer(s, dataset, log.events(stop)).run(folder);
  }

  StopReason resume(const std::string& name, const TrainSettings& s, Log& log,
                    const std::function<int()>& stop = {}) {
    RunFolder folder = RunFolder::resume(run(name));
    return Trainer::resume(s, dataset, find_checkpoint(run(name), "last"), log.events(stop))
        .run(folder);
  }

  // Name and bytes of every file of the last checkpoint.
  std::map<std::string, std::string> last_files(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(run(name) / "last")) {
      files[entry.path().filename().string()] =
          dir.read(name + "/last/" + entry.path().filename().string());
    }
    return files;
  }

  void expect_finite_weights(const std::string& name) const {
    for (const auto& [key, x] : read_safetensors(run(name) / "last/model.safetensors").tensors) {
      EXPECT_TRUE(std::isfinite(sum(x).item())) << key;
    }
  }

  TempFolder dir;
  data::Dataset dataset;
};

}  // namespace chargrad::train
