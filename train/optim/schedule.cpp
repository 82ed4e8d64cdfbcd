#include "train/optim/schedule.h"

#include <cmath>

namespace chargrad::optim {

double Schedule::at(int64_t iter) const {
  constexpr double kPi = 3.14159265358979323846;
  if (!decay_lr) {
    return learning_rate;
  }
  if (iter < warmup_iters) {
    // One ahead on both sides: the first iteration learns too, and the peak comes only once.
    return learning_rate * static_cast<double>(iter + 1) / static_cast<double>(warmup_iters + 1);
  }
  if (iter > lr_decay_iters) {
    return min_lr;
  }
  const auto length = static_cast<double>(lr_decay_iters - warmup_iters);
  // No length: the warm-up ends where the decay does, and this one iteration is the peak.
  const double done = length > 0 ? static_cast<double>(iter - warmup_iters) / length : 0.0;
  return min_lr + 0.5 * (1.0 + std::cos(kPi * done)) * (learning_rate - min_lr);
}

}  // namespace chargrad::optim
