// Why attention divides by sqrt(d_k): an experiment over the length of a key. Nothing here prints.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace chargrad::tests {

// What a relative error of a gradient against finite differences may be, as in report.h.
inline constexpr double kMaxScalingError = 1e-6;

struct ScalingOptions {
  int64_t max_dk = 1024;
  int64_t samples = 512;  // queries for each d_k
  int64_t keys = 16;      // fresh ones for each query
  int64_t seed = 1337;
};

struct MeanAndMedian {
  double mean = 0;
  double median = 0;
};

// Of all queries at one d_k. The scores are what the softmax is taken of: q . k, divided by
// sqrt(d_k) where `scaled`. Gradients are of sum(weights * g) for a fixed random g.
struct ScalingRow {
  int64_t d_k = 1;
  bool scaled = true;
  double score_std = 0;
  double max_weight_mean = 0;
  double entropy_mean = 0;            // nats
  MeanAndMedian jacobian_norm;        // Frobenius norm of d weights / d scores
  MeanAndMedian score_grad_norm;      // of the gradient with respect to a query's scores
  MeanAndMedian query_grad_norm;      // what then reaches the query: a factor 1/sqrt(d_k) is in it
  MeanAndMedian key_grad_norm;        // and its keys
  double dead_share = 0;              // of the weights, those below 1e-6
  double max_rel_error = 0;           // of all these gradients against finite differences
  std::vector<double> first_weights;  // of the first query, largest first
};

// The lesson's own pair: scores (8, 0) and (8, 0) / sqrt(64).
struct TwoScores {
  std::array<double, 2> scores{};
  std::array<double, 2> weights{};
  double derivative = 0;  // of the first weight by the first score, from autograd
  double numeric = 0;     // by central differences
  double rel_error = 0;   // |derivative - numeric| / |numeric|
};

struct ScalingResult {
  ScalingOptions options;
  std::vector<ScalingRow> rows;  // d_k = 1, 2, 4, ..., each without and with the scale
  TwoScores raw;
  TwoScores scaled;
  double ratio() const { return scaled.derivative / raw.derivative; }
  double max_rel_error() const;
  bool confirmed() const { return max_rel_error() <= kMaxScalingError; }
};

// Queries, keys and g are standard normal. The same ones serve both variants of a d_k. Every
// gradient comes from the engine's autograd in float64 and is compared with central differences in
// the same run: along a random direction for every query, and element by element for four of them;
// an error is taken relative to the largest numeric derivative of its kind, at least 1e-3.
// Requires: max_dk, samples and keys are positive.
ScalingResult measure_scaling(const ScalingOptions& options);

}  // namespace chargrad::tests
