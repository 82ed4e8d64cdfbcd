// The crudest way to let a token see its past: the plain average. First as the loop that it is,
// then as the matrix product that attention grows from.
#pragma once

#include "engine/tensor.h"

namespace chargrad {

// x (B, T, C) -> (B, T, C): position t holds the mean of positions 0 .. t.
Tensor causal_average_loop(const Tensor& x);

// The same as one product with causal_average_weights(T).
Tensor causal_average_matmul(const Tensor& x);

// (T, T): row t holds 1 / (t + 1) in columns 0 .. t, 0 beyond.
Tensor causal_average_weights(int64_t T, DType dtype = kFloat32);

}  // namespace chargrad
