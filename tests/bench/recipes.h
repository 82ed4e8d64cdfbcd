// The two models that every speed target is about, and their training step without files.
#pragma once

#include <string>
#include <vector>

#include "models/gpt.h"
#include "train/batches.h"
#include "train/optim/adamw.h"

namespace chargrad::bench {

struct Recipe {
  std::string name;
  GPTConfig config;
  int64_t batch_size;

  int64_t tokens() const { return batch_size * config.block_size; }
  // Floating-point operations of a step: 6 a token and parameter, and attention's products.
  double step_flops(int64_t parameters) const;
};

// The CPU recipe, "cpu", and the baby GPT, "baby", of train's presets.
const std::vector<Recipe>& recipes();
// Throws for another name.
const Recipe& recipe(const std::string& name);

// One step after the other on a random batch: forward, loss, backward, clip, AdamW.
class TrainingStep {
 public:
  // `dtype`: the products' (autocast).
  TrainingStep(const Recipe& recipe, DType dtype, double dropout);
  // Takes another batch, of a text, as train does before each step.
  void draw();
  // Returns the loss.
  double run();
  const GPT& model() const { return model_; }

 private:
  DType dtype_;
  GPT model_;
  optim::AdamW optimizer_;
  train::Batch batch_;
};

// Minor page faults of this process so far.
int64_t page_faults();

}  // namespace chargrad::bench
