#include "tests/gradcheck/scaling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/ops.h"

namespace chargrad::tests {
namespace {

constexpr int64_t kBatch = 64;       // queries computed at once, to keep memory small
constexpr int64_t kEachElement = 4;  // queries whose gradients are checked element by element
// Scores move by about this much between the points of a central difference: its error is then
// about step^2 / 6 = 2e-9 of the derivative, and rounding 1e-14 / step = 1e-10 of a score's unit.
constexpr double kStep = 1e-4;
constexpr double kSmallest = 1e-3;  // numeric derivatives below count as this, as in gradcheck
constexpr double kDead = 1e-6;

Tensor normal(const Shape& shape, Generator& generator) {
  return randn(shape, kFloat64, generator);
}

// q (n, D), k (n, N, D) -> (n, N).
Tensor scores_of(const Tensor& q, const Tensor& k, double scale) {
  return squeeze(matmul(k, unsqueeze(q, -1)), -1) * scale;
}

// What the gradients are of, one number a query: (n, N), g (N) -> (n).
Tensor losses_of(const Tensor& scores, const Tensor& g) {
  return sum(softmax(scores) * g, {-1});
}

// The larger of two errors; a NaN is the worst.
double worse(double a, double b) {
  return a > b || std::isnan(a) ? a : b;
}

// Largest |analytic - numeric| over the largest |numeric|, in one pass over pieces of a kind.
class Comparison {
 public:
  void add(double analytic, double numeric) {
    error_ = worse(error_, std::abs(analytic - numeric));
    largest_ = std::max(largest_, std::abs(numeric));
  }
  void add(const Tensor& analytic, const Tensor& numeric) {
    const std::vector<double> a = analytic.to_vector<double>(), n = numeric.to_vector<double>();
    for (size_t i = 0; i < a.size(); ++i) {
      add(a[i], n[i]);
    }
  }
  double relative() const { return error_ / std::max(largest_, kSmallest); }

 private:
  double error_ = 0;
  double largest_ = kSmallest;
};

// f at x + step * direction minus f at x - step * direction, over 2 step.
Tensor central_difference(const std::function<Tensor(const Tensor&)>& f, const Tensor& x,
                          const Tensor& direction, double step) {
  return (f(x + direction * step) - f(x - direction * step)) / (2 * step);
}

// Zeros like x (n, N), with ones in column i.
Tensor one_hot(const Tensor& x, int64_t i) {
  Tensor result = zeros_like(x);
  fill_(result.select(1, i), 1);
  return result;
}

// The norm of each row of x (n, ...).
std::vector<double> row_norms(const Tensor& x) {
  return sqrt(sum(x * x, x.dim() == 3 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1}))
      .to_vector<double>();
}

void append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

MeanAndMedian mean_and_median(std::vector<double> values) {
  const double mean = mean_of(values);
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {mean, n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2};
}

// One d_k, with or without the scale; takes its queries batch by batch.
class Measurement {
 public:
  Measurement(int64_t d_k, bool scaled, Tensor g)
      : d_k_(d_k),
        scaled_(scaled),
        scale_(scaled ? 1 / std::sqrt(static_cast<double>(d_k)) : 1),
        g_(std::move(g)) {}

  // q (n, D), k (n, N, D); directions of the same shapes, and one of the scores (n, N).
  struct Inputs {
    Tensor q, k;
    Tensor q_direction, k_direction, score_direction;
  };

  void add(const Inputs& in) {
    const Tensor q = in.q.detach().set_requires_grad(), k = in.k.detach().set_requires_grad();
    const Tensor scores = scores_of(q, k, scale_);
    scores.retain_grad();
    const Tensor losses = losses_of(scores, g_);
    sum(losses).backward();
    const Tensor s = scores.detach();
    const Tensor jacobian = jacobian_of(s);  // (n, N, N)
    const NoGradGuard no_grad;
    const Tensor weights = softmax(s);
    append(scores_, s.to_vector<double>());
    append(weights_, weights.to_vector<double>());
    append(score_norms_, row_norms(scores.grad()));
    append(query_norms_, row_norms(q.grad()));
    append(key_norms_, row_norms(k.grad()));
    check_directions(in, s, scores.grad(), q.grad(), k.grad());
    append(jacobian_norms_, row_norms(jacobian));
    jacobian_check_.add(sum(jacobian * unsqueeze(in.score_direction, 1), {-1}),
                        central_difference([](const Tensor& x) { return softmax(x); }, s,
                                           in.score_direction, kStep));
    if (first_weights_.empty()) {
      first_weights_ = weights.select(0, 0).to_vector<double>();
      std::sort(first_weights_.rbegin(), first_weights_.rend());
      check_elements(in, s, jacobian, scores.grad(), q.grad(), k.grad());
    }
  }

  ScalingRow row() const {
    ScalingRow r;
    r.d_k = d_k_;
    r.scaled = scaled_;
    r.score_std = standard_deviation(scores_);
    const size_t n = static_cast<size_t>(g_.numel()), samples = weights_.size() / n;
    for (size_t i = 0; i < samples; ++i) {
      const auto begin = weights_.begin() + static_cast<std::ptrdiff_t>(i * n);
      const auto end = begin + static_cast<std::ptrdiff_t>(n);
      r.max_weight_mean += *std::max_element(begin, end) / static_cast<double>(samples);
      r.entropy_mean += entropy(begin, end) / static_cast<double>(samples);
    }
    const auto dead = std::count_if(weights_.begin(), weights_.end(),
                                    [](double weight) { return weight < kDead; });
    r.dead_share = static_cast<double>(dead) / static_cast<double>(weights_.size());
    r.jacobian_norm = mean_and_median(jacobian_norms_);
    r.score_grad_norm = mean_and_median(score_norms_);
    r.query_grad_norm = mean_and_median(query_norms_);
    r.key_grad_norm = mean_and_median(key_norms_);
    for (const Comparison* check :
         {&jacobian_check_, &score_check_, &query_check_, &key_check_, &element_jacobian_check_,
          &element_score_check_, &element_query_check_, &element_key_check_}) {
      r.max_rel_error = worse(r.max_rel_error, check->relative());
    }
    r.first_weights = first_weights_;
    return r;
  }

 private:
  using Iterator = std::vector<double>::const_iterator;

  static double entropy(Iterator begin, Iterator end) {
    return std::accumulate(
        begin, end, 0.0, [](double sum, double p) { return p > 0 ? sum - p * std::log(p) : sum; });
  }

  static double standard_deviation(const std::vector<double>& values) {
    const double mean = mean_of(values);
    double squares = 0;
    for (const double value : values) {
      squares += (value - mean) * (value - mean);
    }
    return std::sqrt(squares / static_cast<double>(values.size()));
  }

  // Row i of the result is the gradient of weight i: (n, N) -> (n, N, N), by N backward passes.
  static Tensor jacobian_of(const Tensor& scores) {
    const Tensor z = scores.detach().set_requires_grad();
    std::vector<Tensor> rows;
    const Tensor weights = softmax(z);
    for (int64_t i = 0; i < z.size(1); ++i) {
      rows.push_back(grad({weights}, {z}, {one_hot(z, i)}, /*retain_graph=*/true)[0]);
    }
    return stack(rows, 1);
  }

  // Along a random direction, for every query: score, query and key gradients.
  void check_directions(const Inputs& in, const Tensor& s, const Tensor& ds, const Tensor& dq,
                        const Tensor& dk) {
    score_check_.add(sum(ds * in.score_direction, {-1}),
                     central_difference([this](const Tensor& x) { return losses_of(x, g_); }, s,
                                        in.score_direction, kStep));
    // A direction of unit variance moves a score by about this much.
    const double reach = std::max(1.0, scale_ * std::sqrt(static_cast<double>(d_k_)));
    query_check_.add(sum(dq * in.q_direction, {-1}),
                     central_difference(
                         [&](const Tensor& x) { return losses_of(scores_of(x, in.k, scale_), g_); },
                         in.q, in.q_direction, kStep / reach));
    key_check_.add(sum(dk * in.k_direction, {1, 2}),
                   central_difference(
                       [&](const Tensor& x) { return losses_of(scores_of(in.q, x, scale_), g_); },
                       in.k, in.k_direction, kStep / reach));
  }

  // Moves element `i` of each of the first rows of x by itself: f's rows do not see each other.
  static Tensor element_difference(const std::function<Tensor()>& f, const Tensor& x, int64_t i) {
    const int64_t stride = x.numel() / x.size(0);
    double* data = x.data<double>();
    const auto move = [&](double by) {
      for (int64_t row = 0; row < x.size(0); ++row) {
        data[row * stride + i] += by;
      }
    };
    // Moved back by adding would leave rounding behind: the old values are put back.
    std::vector<double> before;
    for (int64_t row = 0; row < x.size(0); ++row) {
      before.push_back(data[row * stride + i]);
    }
    const auto restore = [&] {
      for (int64_t row = 0; row < x.size(0); ++row) {
        data[row * stride + i] = before[static_cast<size_t>(row)];
      }
    };
    move(kStep);
    const Tensor above = f();
    restore();
    move(-kStep);
    const Tensor below = f();
    restore();
    return (above - below) / (2 * kStep);
  }

  // Every element of the first queries' scores, queries and keys.
  void check_elements(const Inputs& in, const Tensor& all_scores, const Tensor& jacobian,
                      const Tensor& ds, const Tensor& dq, const Tensor& dk) {
    const int64_t rows = std::min(kEachElement, in.q.size(0));
    const auto first = [rows](const Tensor& x) { return clone(narrow(x, 0, 0, rows)); };
    const Tensor s = first(all_scores), q = first(in.q), k = first(in.k);
    const auto compare = [rows](Comparison& check, const Tensor& gradient, const Tensor& x,
                                const std::function<Tensor()>& losses) {
      const Tensor g = clone(narrow(gradient, 0, 0, rows)).reshape({rows, -1});
      for (int64_t i = 0; i < x.numel() / rows; ++i) {
        check.add(g.select(1, i), element_difference(losses, x, i));
      }
    };
    compare(element_score_check_, ds, s, [&] { return losses_of(s, g_); });
    compare(element_query_check_, dq, q, [&] { return losses_of(scores_of(q, k, scale_), g_); });
    compare(element_key_check_, dk, k, [&] { return losses_of(scores_of(q, k, scale_), g_); });
    for (int64_t j = 0; j < s.size(1); ++j) {
      element_jacobian_check_.add(clone(narrow(jacobian.select(2, j), 0, 0, rows)),
                                  element_difference([&] { return softmax(s); }, s, j));
    }
  }

  int64_t d_k_;
  bool scaled_;
  double scale_;
  Tensor g_;
  std::vector<double> scores_, weights_;
  std::vector<double> jacobian_norms_, score_norms_, query_norms_, key_norms_;
  std::vector<double> first_weights_;
  Comparison jacobian_check_, score_check_, query_check_, key_check_;
  Comparison element_jacobian_check_, element_score_check_, element_query_check_,
      element_key_check_;
};

TwoScores two_scores(double scale) {
  TwoScores result;
  result.scores = {8 * scale, 0};
  const Tensor z = tensor({result.scores[0], result.scores[1]}, kFloat64).set_requires_grad();
  const Tensor p = softmax(z);
  result.weights = {p.item({0}), p.item({1})};
  result.derivative = grad({p.select(0, 0)}, {z})[0].item({0});
  const auto first_weight = [&](double by) {
    return softmax(tensor({result.scores[0] + by, 0}, kFloat64)).item({0});
  };
  result.numeric = (first_weight(kStep) - first_weight(-kStep)) / (2 * kStep);
  result.rel_error = std::abs(result.derivative - result.numeric) / std::abs(result.numeric);
  return result;
}

}  // namespace

double ScalingResult::max_rel_error() const {
  double worst = worse(raw.rel_error, scaled.rel_error);
  for (const ScalingRow& row : rows) {
    worst = worse(worst, row.max_rel_error);
  }
  return worst;
}

ScalingResult measure_scaling(const ScalingOptions& options) {
  CHARGRAD_CHECK(options.max_dk > 0 && options.samples > 0 && options.keys > 0,
                 "scaling: max_dk, samples and keys must be positive, got ", options.max_dk, ", ",
                 options.samples, " and ", options.keys);
  ScalingResult result;
  result.options = options;
  Generator generator(static_cast<uint64_t>(options.seed));
  Generator directions(static_cast<uint64_t>(options.seed) + 1);
  const Tensor g = normal({options.keys}, generator);
  for (int64_t d_k = 1; d_k <= options.max_dk; d_k *= 2) {
    Measurement raw(d_k, /*scaled=*/false, g), scaled(d_k, /*scaled=*/true, g);
    for (int64_t done = 0; done < options.samples; done += kBatch) {
      const int64_t n = std::min(kBatch, options.samples - done);
      Measurement::Inputs in;
      in.q = normal({n, d_k}, generator);
      in.k = normal({n, options.keys, d_k}, generator);
      in.q_direction = normal({n, d_k}, directions);
      in.k_direction = normal({n, options.keys, d_k}, directions);
      in.score_direction = normal({n, options.keys}, directions);
      raw.add(in);
      scaled.add(in);
    }
    result.rows.push_back(raw.row());
    result.rows.push_back(scaled.row());
  }
  result.raw = two_scores(1);
  result.scaled = two_scores(1 / std::sqrt(64.0));
  return result;
}

}  // namespace chargrad::tests
