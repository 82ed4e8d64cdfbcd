#include "models/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

void check_options(const SamplingOptions& o) {
  CHARGRAD_CHECK(std::isfinite(o.temperature) && o.temperature >= 0,
                 "generate: temperature must be finite and not negative, got ", o.temperature);
  CHARGRAD_CHECK(o.top_k >= 0, "generate: top_k must not be negative, got ", o.top_k);
  CHARGRAD_CHECK(o.top_p >= 0 && o.top_p <= 1, "generate: top_p must be in [0, 1], got ", o.top_p);
}

// A temperature that float32 cannot hold is as good as 0.
bool is_greedy(const SamplingOptions& o) {
  return o.temperature < static_cast<double>(std::numeric_limits<float>::min());
}

void check_finite(const Tensor& logits) {
  for (const double value : logits.to_vector<double>()) {
    if (!std::isfinite(value)) {
      throw std::runtime_error(
          "generate: non-finite logits: the model's weights hold a NaN, an "
          "infinity or overflowing numbers");
    }
  }
}

// Columns of one row from the likeliest down; equal ones in their own order.
std::vector<size_t> by_probability(const double* p, size_t n) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [p](size_t a, size_t b) { return p[a] > p[b]; });
  return order;
}

// How many of the ordered columns the options keep.
size_t kept(const double* p, const std::vector<size_t>& order, const SamplingOptions& options) {
  size_t n = order.size();
  if (options.top_k > 0) {
    n = std::min(n, static_cast<size_t>(options.top_k));
  }
  if (options.top_p >= 1) {
    return n;
  }
  const double total =
      std::accumulate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), 0.0,
                      [p](double sum, size_t i) { return sum + p[i]; });
  // Probabilities come from float32, so a sum that should be top_p exactly may fall short by
  // some of its roundings.
  constexpr double kRounding = 1e-6;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += p[order[i]] / total;
    if (sum >= options.top_p - kRounding) {
      return i + 1;
    }
  }
  return n;
}

// 1 where the options keep an id, else 0. p (B, V) -> (B, V) bool.
Tensor keep_mask(const Tensor& p, const SamplingOptions& options) {
  const auto rows = static_cast<size_t>(p.size(0)), cols = static_cast<size_t>(p.size(1));
  const std::vector<double> values = p.to_vector<double>();
  std::vector<int64_t> keep(values.size(), 0);
  for (size_t row = 0; row < rows; ++row) {
    const double* p_row = values.data() + row * cols;
    const std::vector<size_t> order = by_probability(p_row, cols);
    const size_t n = kept(p_row, order, options);
    for (size_t i = 0; i < n; ++i) {
      keep[row * cols + order[i]] = 1;
    }
  }
  return from_vector(keep, p.shape(), kBool);
}

}  // namespace

Tensor next_probabilities(const Tensor& logits, const SamplingOptions& options) {
  check_options(options);
  check_floating("generate", logits, "logits");
  CHARGRAD_CHECK(logits.dim() == 2 && logits.size(1) > 0,
                 "generate: logits must have shape [B, V], got ", logits.shape());
  const NoGradGuard no_grad;
  check_finite(logits);
  const Tensor x = logits.dtype() == kBFloat16 ? logits.to(kFloat32) : logits;
  // Subtracting the maximum first keeps tiny temperatures finite.
  const Tensor shifted = x - amax(x, {1}, /*keepdim=*/true);
  const bool greedy = is_greedy(options);
  Tensor p = softmax(greedy ? shifted : shifted / options.temperature, 1);
  if (greedy || options.top_k > 0 || options.top_p < 1) {
    SamplingOptions filter = options;
    filter.top_k = greedy ? 1 : options.top_k;
    const Tensor dropped = eq(keep_mask(p, filter).to(kInt64), 0);
    const Tensor rest = masked_fill(p, dropped, 0);
    return rest / sum(rest, {1}, /*keepdim=*/true);
  }
  return p;
}

Tensor generate(const LanguageModel& model, const Tensor& ids, int64_t max_new_tokens,
                const SamplingOptions& options, Generator& generator,
                const std::function<bool(const std::vector<int64_t>&)>& on_token) {
  CHARGRAD_CHECK(max_new_tokens >= 0, "generate: max_new_tokens must not be negative, got ",
                 max_new_tokens);
  CHARGRAD_CHECK(ids.dim() == 2 && ids.size(1) > 0,
                 "generate: ids must have shape [B, T] with T >= 1, got ", ids.shape());
  check_options(options);
  const NoGradGuard no_grad;
  Tensor result = ids;
  for (int64_t i = 0; i < max_new_tokens; ++i) {
    const int64_t T = result.size(1);
    const int64_t length = std::min(T, model.block_size());
    const Tensor context = narrow(result, 1, T - length, length);  // (B, length)
    const Tensor p = next_probabilities(model.next_logits(context), options);
    const Tensor next = is_greedy(options) ? argmax(p, 1, /*keepdim=*/true)
                                           : multinomial(p, 1, false, generator);  // (B, 1)
    result = cat({result, next}, 1);
    if (on_token && !on_token(next.to_vector<int64_t>())) {
      break;
    }
  }
  return result;
}

}  // namespace chargrad
