// The optimizer and gradient clipping, as torch.optim.AdamW and torch.nn.utils.clip_grad_norm_.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/module.h"

namespace chargrad::optim {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // on tensors of two dims or more; others do not decay
};

// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay
// Regularization", 2019) over named parameters, whose handles it keeps. A parameter without a
// gradient is passed over, as in PyTorch.
class AdamW {
 public:
  AdamW(const nn::NamedTensors& parameters, const AdamWOptions& options);

  // One update from the parameters' .grad.
  void step();
  void set_learning_rate(double learning_rate) { options_.learning_rate = learning_rate; }

  // Updates so far; the bias corrections depend on it.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  // The moments "exp_avg.NAME" and "exp_avg_sq.NAME", shared: copying into them restores them.
  nn::NamedTensors state() const;

 private:
  struct Slot {
    std::string name;
    Tensor parameter, exp_avg, exp_avg_sq;
  };
  AdamWOptions options_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
};

// Scales the gradients in place such that their common L2 norm is at most max_norm; 0 leaves them
// as they are. Returns the norm before. Throws for a negative or non-finite max_norm. A non-finite
// norm is returned without scaling.
double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace chargrad::optim
