// What an optimizer step does to one contiguous array.
#pragma once

#include <cstdint>

namespace chargrad::kernels {

struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t step = 1;       // Of this update: the first is 1.
  double grad_scale = 1;  // What gradients are multiplied by before anything else.
};

// One update of the parameters p and their moments m and v by the gradient g, in the order of
// operations of torch.optim.AdamW, each rounded to S:
//   g = g grad_scale
//   p = p (1 - lr weight_decay)
//   m = m + (1 - beta1) (g - m)
//   v = v beta2 + (1 - beta2) g g
//   p = p - (lr / (1 - beta1^step)) m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
// All tiers give the same bits.
template <class S>
void adamw_step(const AdamW& settings, const S* g, S* p, S* m, S* v, int64_t n);

// sum_i x_i^2, added in double: 0 for n = 0.
template <class S>
double sum_of_squares(const S* x, int64_t n);

}  // namespace chargrad::kernels
