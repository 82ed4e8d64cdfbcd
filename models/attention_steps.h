// What the rungs of the ladder show of themselves.
#pragma once

#include "engine/tensor.h"

namespace chargrad {

// T tokens, d_k numbers in a query or a key, d_v in a value; rungs that take batches have their
// dims in front.
struct AttentionSteps {
  Tensor queries;  // (T, d_k)
  Tensor keys;     // (T, d_k)
  Tensor values;   // (T, d_v)
  Tensor scores;   // (T, T), raw: query i with key j, not scaled
  Tensor weights;  // (T, T), rows sum to 1
  Tensor output;   // (T, d_v)
};

}  // namespace chargrad
