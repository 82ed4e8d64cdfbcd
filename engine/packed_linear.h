// A linear layer that is applied again and again to few rows, as in decoding.
#pragma once

#include <variant>

#include "engine/kernels/packed.h"
#include "engine/tensor.h"

namespace chargrad {

// A copy of a layer's weight in the form that products read fastest. Made while autocast is on, it
// is rounded, and works, as linear does under it. Immutable; may be moved, not copied.
class PackedLinear {
 public:
  // weight (out, in), bias (out) or undefined.
  explicit PackedLinear(const Tensor& weight, const Tensor& bias = {});

  // Bit for bit linear(x, weight, bias): x (..., in) -> (..., out), for an x of the weight's dtype
  // or one below it. Has no gradient: throws where one would be recorded.
  Tensor operator()(const Tensor& x) const;

 private:
  DType dtype_;
  Tensor weight_;  // undefined where it is packed: float64 has no packed form
  Tensor bias_;    // in the dtype of the sums, or undefined
  std::variant<std::monostate, kernels::PackedMatrix<float>, kernels::PackedMatrix<bfloat16>>
      packed_;
  int64_t in_ = 0;
  int64_t out_ = 0;
};

}  // namespace chargrad
