#include "train/optim/adamw.h"

#include <cmath>

#include "engine/kernels/adamw.h"
#include "engine/ops.h"

namespace chargrad::optim {

AdamW::AdamW(const nn::NamedTensors& parameters, const AdamWOptions& options) : options_(options) {
  for (const auto& [name, parameter] : parameters) {
    CHARGRAD_CHECK(parameter.is_contiguous(), "AdamW: parameter ", name, " must be contiguous");
    slots_.push_back({name, parameter, zeros_like(parameter), zeros_like(parameter)});
  }
}

void AdamW::step(double grad_scale) {
  ++steps_;
  for (const Slot& slot : slots_) {
    const Tensor gradient = slot.parameter.grad();
    if (!gradient.defined()) {
      continue;
    }
    kernels::AdamW update;
    update.lr = options_.learning_rate;
    update.beta1 = options_.beta1;
    update.beta2 = options_.beta2;
    update.eps = options_.eps;
    update.weight_decay = slot.parameter.dim() >= 2 ? options_.weight_decay : 0;
    update.step = steps_;
    update.grad_scale = grad_scale;
    const Tensor g = gradient.contiguous();
    visit_floating(slot.parameter.dtype(), [&]<class S>() {
      kernels::adamw_step<S>(update, g.data<S>(), slot.parameter.data<S>(), slot.exp_avg.data<S>(),
                             slot.exp_avg_sq.data<S>(), slot.parameter.numel());
    });
    slot.parameter.bump_version();
  }
}

nn::NamedTensors AdamW::state() const {
  nn::NamedTensors result;
  for (const Slot& slot : slots_) {
    result.emplace_back("exp_avg." + slot.name, slot.exp_avg);
    result.emplace_back("exp_avg_sq." + slot.name, slot.exp_avg_sq);
  }
  return result;
}

double grad_norm(const std::vector<Tensor>& parameters) {
  double squares = 0;
  for (const Tensor& parameter : parameters) {
    if (const Tensor gradient = parameter.grad(); gradient.defined()) {
      const Tensor g = gradient.contiguous();
      visit_floating(g.dtype(), [&]<class S>() {
        squares += kernels::sum_of_squares<S>(g.data<S>(), g.numel());
      });
    }
  }
  return std::sqrt(squares);
}

double clip_factor(double norm, double max_norm) {
  CHARGRAD_CHECK(std::isfinite(max_norm) && max_norm >= 0,
                 "clip_factor: max_norm must be finite and not negative, got ", max_norm);
  // PyTorch's small addend, which keeps the scaled norm from rounding above the limit.
  const double factor = max_norm / (norm + 1e-6);
  return max_norm == 0 || !std::isfinite(norm) || factor >= 1 ? 1 : factor;
}

}  // namespace chargrad::optim
