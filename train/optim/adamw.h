// The optimizer and gradient clipping, as torch.optim.AdamW and torch.nn.utils.clip_grad_norm_: the
// norm is one pass over the gradients, and the update scales them as it reads them.
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

  // One update from the parameters' .grad times grad_scale; .grad itself stays.
  void step(double grad_scale = 1);
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

// The L2 norm of all gradients together; a parameter without one is passed over.
double grad_norm(const std::vector<Tensor>& parameters);

// What gradients of that norm are multiplied by for it to be at most max_norm, as
// torch.nn.utils.clip_grad_norm_ does; 1 for a max_norm of 0 and for a norm that is not finite.
// Throws for a negative or non-finite max_norm.
double clip_factor(double norm, double max_norm);

}  // namespace chargrad::optim
