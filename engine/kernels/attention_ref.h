// attention_rows.h as plain loops.
#pragma once

#include <cmath>
#include <limits>

#include "engine/kernels/attention_rows.h"

namespace chargrad::kernels::ref {

template <class S>
void attention_weights(const ScoreRows<S>& block, S* s, S* lse) {
  constexpr S kMinusInf = -std::numeric_limits<S>::infinity();
  for (int64_t r = 0; r < block.rows; ++r, s += block.ld) {
    const int64_t n = block.seen(r);
    S max = kMinusInf;
    for (int64_t j = 0; j < n; ++j) {
      s[j] = s[j] * block.scale + (block.mask ? block.mask[r * block.mask_row + j] : S(0));
      // Written so that a NaN is kept.
      max = s[j] > max || std::isnan(s[j]) ? s[j] : max;
    }
    if (max == kMinusInf) {
      for (int64_t j = 0; j < block.cols; ++j) {
        s[j] = 0;
      }
      lse[r] = kMinusInf;
      continue;
    }
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      s[j] = std::exp(s[j] - max);
      sum += static_cast<double>(s[j]);
    }
    for (int64_t j = 0; j < n; ++j) {
      s[j] = static_cast<S>(static_cast<double>(s[j]) / sum);
    }
    for (int64_t j = n; j < block.cols; ++j) {
      s[j] = 0;
    }
    lse[r] = static_cast<S>(static_cast<double>(max) + std::log(sum));
  }
}

template <class S>
void attention_weights_again(const ScoreRows<S>& block, S* s, const S* lse) {
  for (int64_t r = 0; r < block.rows; ++r, s += block.ld) {
    const bool empty = lse[r] == -std::numeric_limits<S>::infinity();
    const int64_t n = empty ? 0 : block.seen(r);
    for (int64_t j = 0; j < n; ++j) {
      const S score = s[j] * block.scale + (block.mask ? block.mask[r * block.mask_row + j] : S(0));
      s[j] = std::exp(score - lse[r]);
    }
    for (int64_t j = n; j < block.cols; ++j) {
      s[j] = 0;
    }
  }
}

template <class S>
void attention_score_grad(const ScoreRows<S>& block, const S* p, S* dp, const S* delta) {
  for (int64_t r = 0; r < block.rows; ++r, p += block.ld, dp += block.ld) {
    const int64_t n = block.seen(r);
    for (int64_t j = 0; j < n; ++j) {
      dp[j] = block.scale * p[j] * (dp[j] - delta[r]);
    }
    for (int64_t j = n; j < block.cols; ++j) {
      dp[j] = 0;
    }
  }
}

}  // namespace chargrad::kernels::ref
