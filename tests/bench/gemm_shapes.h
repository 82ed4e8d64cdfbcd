// The matrix products of both models, one layer's at a time, by our kernels.
#pragma once

#include <string>
#include <vector>

#include "engine/ops.h"
#include "tests/bench/recipes.h"

namespace chargrad::bench {

enum class Pass {
  kForward,         // y = x W^T
  kInputGradient,   // dx = dy W
  kWeightGradient,  // dW = dy^T x, float32 of bfloat16 operands
};

// A layer of `out` x `in` weights over `rows` tokens.
struct GemmShape {
  std::string name;  // c_attn/forward
  Pass pass;
  int64_t rows, in, out;

  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
};

std::vector<GemmShape> gemm_shapes(const Recipe& recipe);
// Throws for another name.
GemmShape gemm_shape(const Recipe& recipe, const std::string& name);

// The operands and the result of one product.
class Gemm {
 public:
  Gemm(GemmShape shape, DType dtype);
  void run();

  const GemmShape& shape() const { return shape_; }
  // x (rows, in), w (out, in), y (rows, out) in the dtype, dw (out, in) in float32.
  Tensor x, w, y, dw;

 private:
  GemmShape shape_;
};

}  // namespace chargrad::bench
