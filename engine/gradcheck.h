// Gradients against central finite differences, in double. As torch.autograd.gradcheck.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace chargrad {

// A function of the inputs with one floating result of any shape. It may reach the inputs through
// handles of its own too, as a module reaches its parameters.
using GradcheckFunction = std::function<Tensor(const std::vector<Tensor>&)>;

struct GradcheckOptions {
  double eps = 1e-6;   // half the distance of the two points
  double atol = 1e-5;  // passes where |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;
};

// One element of one input, and its gradient both ways.
struct GradcheckElement {
  size_t input = 0;
  std::vector<int64_t> index;
  double analytic = 0;
  double numeric = 0;
};

struct GradcheckResult {
  // Whether every element is within its allowance. A NaN or an infinity never is.
  bool passed = false;
  // The element where |analytic - numeric| is largest over its allowance.
  GradcheckElement worst;
  // max |analytic - numeric| over all inputs; infinite where a gradient is not finite.
  double max_abs_error = 0;
  // Largest over the inputs of max |analytic - numeric| / max(max |numeric|, 1e-3).
  double max_rel_error = 0;
  // "input 1 at [0, 2]: analytic 0.5, numeric 0.51" of the worst element.
  std::string message() const;
};

// Compares the gradient of sum(f(inputs) * w), for a fixed pseudo-random w of the result's shape,
// with central differences, element by element, of every input that requires grad. A result that
// does not depend on an input, as far as the graph knows, has the gradient 0.
// Each such input must be float64, sharing memory neither within itself nor with another input,
// and at least one with an element is required; f must give the same bits in each call, recorded
// or not; otherwise throws std::invalid_argument. The inputs' values are the same to the bit
// afterwards, also when f throws; their .grad is untouched, and so is the default generator.
GradcheckResult gradcheck(const GradcheckFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace chargrad
