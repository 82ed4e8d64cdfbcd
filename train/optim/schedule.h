// The learning rate over the iterations of a run.
#pragma once

#include <cstdint>

namespace chargrad::optim {

// As nanoGPT's get_lr: a linear warm-up, a cosine from `learning_rate` down to `min_lr`, which is
// reached at `lr_decay_iters` and kept.
struct Schedule {
  double learning_rate;
  double min_lr;
  int64_t warmup_iters;
  int64_t lr_decay_iters;
  bool decay_lr = true;  // false: `learning_rate` throughout, without a warm-up.

  // The rate of iteration `iter`, counted from 0. It depends on nothing else, so a resumed run
  // goes on at the same rate. A warm-up that is as long as the decay or longer is followed by
  // `min_lr`.
  double at(int64_t iter) const;
};

}  // namespace chargrad::optim
