// The plain loops of unary.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/unary.h"

namespace chargrad::kernels::ref {

// With e = exp(-|x|), which never overflows.
template <class S>
S sigmoid(S x) {
  const S e = std::exp(-std::abs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

template <class S>
S unary_value(Unary f, S x) {
  switch (f) {
    case Unary::kExp:
      return std::exp(x);
    case Unary::kLog:
      return std::log(x);
    case Unary::kSqrt:
      return std::sqrt(x);
    case Unary::kTanh:
      return std::tanh(x);
    case Unary::kSigmoid:
      return sigmoid(x);
    case Unary::kRelu:
      return x < 0 ? S(0) : x;
  }
  return x;
}

template <class S>
S unary_gradient(Unary f, S saved, S dy) {
  switch (f) {
    case Unary::kExp:
      return saved * dy;
    case Unary::kLog:
      return dy / saved;
    case Unary::kSqrt:
      return dy / (2 * saved);
    case Unary::kTanh:
      return (1 - saved * saved) * dy;
    case Unary::kSigmoid:
      return saved * (1 - saved) * dy;
    case Unary::kRelu:
      return saved <= 0 ? S(0) : dy;
  }
  return dy;
}

template <class S>
void unary_forward(Unary f, const S* x, S* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = unary_value(f, x[i]);
  }
}

template <class S>
void unary_backward(Unary f, const S* saved, const S* dy, S* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = unary_gradient(f, saved[i], dy[i]);
  }
}

}  // namespace chargrad::kernels::ref
