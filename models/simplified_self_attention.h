// Self-attention without a parameter: a token is its own query, key and value.
#pragma once

#include "models/attention_steps.h"

namespace chargrad {

// x (T, C) -> softmax(x x^T * scale) x. With scale = 1 / sqrt(C) it is SelfAttentionV1 whose three
// matrices are the identity.
AttentionSteps simplified_self_attention(const Tensor& x, double scale = 1);

}  // namespace chargrad
