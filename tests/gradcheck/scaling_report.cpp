#include "tests/gradcheck/scaling_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace chargrad::tests {
namespace {

constexpr const char* kRemark =
    "What vanishes without the scale is softmax's own derivative, for most rows: compare the\n"
    "medians; a few rows whose two largest scores happen to be close keep a large one and hold up\n"
    "the mean. The gradient that reaches q and k carries the factor 1/sqrt(d_k) itself where the\n"
    "scores are scaled, so its mean is larger without the scale; its median still vanishes.\n";

std::string table_row(const ScalingRow& r) {
  return fmt::format(
      "{:>5}  {:<4}  {:>8.3f}  {:>8.4f}  {:>8.4f}  {:>8.4f}  {:>9.2e}  {:>8.4f}  {:>9.2e}  "
      "{:>8.4f}  {:>9.2e}  {:>8.4f}  {:>9.2e}  {:>6.1f}  {:>8.1e}\n",
      r.d_k, r.scaled ? "yes" : "no", r.score_std, r.max_weight_mean, r.entropy_mean,
      r.jacobian_norm.mean, r.jacobian_norm.median, r.score_grad_norm.mean,
      r.score_grad_norm.median, r.query_grad_norm.mean, r.query_grad_norm.median,
      r.key_grad_norm.mean, r.key_grad_norm.median, 100 * r.dead_share, r.max_rel_error);
}

// "3.352e-04", "0.19661".
std::string digits(double value) {
  return value < 1e-3 ? fmt::format("{:.3e}", value) : fmt::format("{:.5f}", value);
}

std::string pair_line(const char* name, const TwoScores& p) {
  return fmt::format(
      "{:<22} = ({:.4f}, {:.4f}); derivative of the first weight {}, by finite differences {} "
      "(relative error {:.1e})\n",
      name, p.weights[0], p.weights[1], digits(p.derivative), digits(p.numeric), p.rel_error);
}

nlohmann::ordered_json pair_json(const TwoScores& p) {
  return {{"scores", p.scores},
          {"weights", p.weights},
          {"derivative", p.derivative},
          {"numeric", p.numeric},
          {"rel_error", p.rel_error}};
}

nlohmann::ordered_json row_json(const ScalingRow& r) {
  return {{"d_k", r.d_k},
          {"scaled", r.scaled},
          {"score_std", r.score_std},
          {"max_weight_mean", r.max_weight_mean},
          {"entropy_mean", r.entropy_mean},
          {"jacobian_norm_mean", r.jacobian_norm.mean},
          {"jacobian_norm_median", r.jacobian_norm.median},
          {"score_grad_norm_mean", r.score_grad_norm.mean},
          {"score_grad_norm_median", r.score_grad_norm.median},
          {"query_grad_norm_mean", r.query_grad_norm.mean},
          {"query_grad_norm_median", r.query_grad_norm.median},
          {"key_grad_norm_mean", r.key_grad_norm.mean},
          {"key_grad_norm_median", r.key_grad_norm.median},
          {"dead_share", r.dead_share},
          {"max_rel_error", r.max_rel_error}};
}

}  // namespace

std::string scaling_text(const ScalingResult& result) {
  const ScalingOptions& o = result.options;
  std::string text = fmt::format(
      "{} queries a row, {} keys each, unit variance, seed {}; gradients in float64\n\n"
      "{:>5}  {:<4}  {:>8}  {:>8}  {:>8}  {:>19}  {:>19}  {:>19}  {:>19}  {:>6}  {:>8}\n"
      "{:>5}  {:<4}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>8}  {:>9}  {:>8}  {:>9}  {:>8}  {:>9}"
      "  {:>6}  {:>8}\n",
      o.samples, o.keys, o.seed, "", "", "scores", "largest", "entropy", "softmax's Jacobian",
      "gradient of scores", "of the query", "of the keys", "dead", "largest", "d_k", "1/√d", "std",
      "weight", "nats", "mean", "median", "mean", "median", "mean", "median", "mean", "median", "%",
      "error");
  for (const ScalingRow& row : result.rows) {
    text += table_row(row);
  }
  text += fmt::format("\n{}\n", kRemark);
  text += pair_line("softmax(8, 0)", result.raw);
  text += pair_line("softmax(8/sqrt(64), 0)", result.scaled);
  text += fmt::format(
      "The derivative is {:.0f} times larger with the scale. {}: largest relative error of a "
      "gradient {:.1e}, limit {:.0e}\n",
      result.ratio(), result.confirmed() ? "Both confirmed" : "NOT CONFIRMED",
      result.max_rel_error(), kMaxScalingError);
  return text;
}

std::string scaling_json(const ScalingResult& result) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ScalingRow& row : result.rows) {
    rows.push_back(row_json(row));
  }
  const nlohmann::ordered_json object = {{"rows", rows},
                                         {"samples", result.options.samples},
                                         {"keys", result.options.keys},
                                         {"seed", result.options.seed},
                                         {"softmax_8_0", pair_json(result.raw)},
                                         {"softmax_8_0_over_sqrt_64", pair_json(result.scaled)},
                                         {"ratio", result.ratio()},
                                         {"max_rel_error", result.max_rel_error()}};
  return object.dump(1) + "\n";
}

}  // namespace chargrad::tests
