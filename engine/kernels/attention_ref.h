// Attention of one head as plain loops, row by row: the truth that the fast one is compared with,
// and what float64 and the ref tier use. Sums are double.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/kernels/attention_head.h"
#include "engine/kernels/dropout_ref.h"

namespace chargrad::kernels::ref {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

template <class S>
double element(const MatrixView<S>& m, int64_t i, int64_t j) {
  return static_cast<double>(m.data[i * m.row_stride + j * m.column_stride]);
}

// a_i . b_j, of length n.
template <class S>
double row_dot(const MatrixView<S>& a, int64_t i, const MatrixView<S>& b, int64_t j, int64_t n) {
  double sum = 0;
  for (int64_t d = 0; d < n; ++d) {
    sum += element(a, i, d) * element(b, j, d);
  }
  return sum;
}

// The scores of row i with the columns it sees.
template <class S>
void attention_scores(const AttentionHead<S>& head, int64_t i, std::vector<double>& scores) {
  scores.resize(static_cast<size_t>(head.seen(i)));
  for (size_t j = 0; j < scores.size(); ++j) {
    const auto at = static_cast<int64_t>(j);
    scores[j] = row_dot(head.q, i, head.k, at, head.D) * static_cast<double>(head.scale) +
                (head.mask.data ? static_cast<double>(head.mask.at(i)[j]) : 0.0);
  }
}

// Log sum exp; -inf if there is nothing, or nothing finite.
inline double log_sum_exp(const std::vector<double>& scores) {
  double max = kMinusInfinity;
  for (const double s : scores) {
    max = s > max || std::isnan(s) ? s : max;  // Keeps a NaN.
  }
  if (max == kMinusInfinity) {
    return max;
  }
  double sum = 0;
  for (const double s : scores) {
    sum += std::exp(s - max);
  }
  return max + std::log(sum);
}

// scores -> softmax, given their lse.
inline void weights_from(std::vector<double>& scores, double lse) {
  for (double& s : scores) {
    s = lse == kMinusInfinity ? 0 : std::exp(s - lse);
  }
}

// What dropout multiplies row i's first n weights with.
template <class S>
void drop_factors(const AttentionHead<S>& head, int64_t i, size_t n, std::vector<double>& factors) {
  factors.assign(n, 1);
  if (head.dropout_p > 0) {
    ref::dropout_mask(factors.data(), static_cast<int64_t>(n), head.dropout_p, head.key,
                      head.first_weight + i * head.keys);
  }
}

template <class S>
void attention_forward(const AttentionHead<S>& head, const Rows<S>& y, Wide<S>* lse) {
  std::vector<double> p, factors;
  for (int64_t i = 0; i < head.T; ++i) {
    attention_scores(head, i, p);
    const double log_sum = log_sum_exp(p);
    weights_from(p, log_sum);
    drop_factors(head, i, p.size(), factors);
    lse[i] = static_cast<Wide<S>>(log_sum);
    for (int64_t e = 0; e < head.E; ++e) {
      double sum = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        sum += p[j] * factors[j] * element(head.v, static_cast<int64_t>(j), e);
      }
      y.at(i)[e] = static_cast<S>(static_cast<Wide<S>>(sum));
    }
  }
}

template <class S>
void store_rows(const std::vector<double>& from, int64_t columns, const Rows<S>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    to.at(at / columns)[at % columns] = static_cast<S>(static_cast<Wide<S>>(from[i]));
  }
}

template <class S>
void attention_backward(const AttentionHead<S>& head, const AttentionHeadResult<S>& result,
                        const AttentionHeadGrads<S>& grads) {
  const int64_t T = head.T, keys = head.keys, D = head.D, E = head.E;
  std::vector<double> dq(static_cast<size_t>(T * D)), dk(static_cast<size_t>(keys * D)),
      dv(static_cast<size_t>(keys * E)), p, factors;
  for (int64_t i = 0; i < T; ++i) {
    attention_scores(head, i, p);
    weights_from(p, static_cast<double>(result.lse[i]));
    drop_factors(head, i, p.size(), factors);
    const double delta = row_dot(result.dy, i, result.y, i, E);
    for (size_t column = 0; column < p.size(); ++column) {
      const auto j = static_cast<int64_t>(column);
      const double dp = row_dot(result.dy, i, head.v, j, E);
      const double ds =
          static_cast<double>(head.scale) * p[column] * (factors[column] * dp - delta);
      for (int64_t e = 0; e < E; ++e) {
        dv[static_cast<size_t>(j * E + e)] +=
            p[column] * factors[column] * element(result.dy, i, e);
      }
      for (int64_t d = 0; d < D; ++d) {
        dq[static_cast<size_t>(i * D + d)] += ds * element(head.k, j, d);
        dk[static_cast<size_t>(j * D + d)] += ds * element(head.q, i, d);
      }
    }
  }
  store_rows(dq, D, grads.dq);
  store_rows(dk, D, grads.dk);
  store_rows(dv, E, grads.dv);
}

}  // namespace chargrad::kernels::ref
