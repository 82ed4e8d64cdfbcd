// Gradients against central finite differences, in double. As torch.autograd.gradcheck.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace chargrad {

// A function of the inputs with one floating result of any shape.
using GradcheckFunction = std::function<Tensor(const std::vector<Tensor>&)>;

struct GradcheckOptions {
  double eps = 1e-6;   // half the distance of the two points
  double atol = 1e-5;  // passes where |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;
};

// The element where |analytic - numeric| is largest over its allowance.
struct GradcheckElement {
  size_t input = 0;
  std::vector<int64_t> index;
  double analytic = 0;
  double numeric = 0;
};

struct GradcheckResult {
  bool passed = false;
  GradcheckElement worst;
  double max_abs_error = 0;  // max |analytic - numeric| over all inputs
  // Largest over the inputs of max |analytic - numeric| / max(max |numeric|, 1e-3).
  double max_rel_error = 0;
  // "input 1 at [0, 2]: analytic 0.5, numeric 0.51" of the worst element.
  std::string message() const;
};

// Compares the gradient of sum(f(inputs) * w), for a fixed pseudo-random w of the result's shape,
// with central differences, element by element, of every input that requires grad.
// Each such input must be float64, without overlapping memory, and at least one is required; f
// called twice must give the same bits; otherwise throws std::invalid_argument. The inputs'
// values are the same to the bit afterwards, also when f throws, and their .grad is untouched.
GradcheckResult gradcheck(const GradcheckFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace chargrad
