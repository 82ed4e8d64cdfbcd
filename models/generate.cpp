#include "models/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
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

// x is contiguous.
void check_finite(const Tensor& x) {
  const bool finite = visit_floating(x.dtype(), [&]<class S>() {
    return std::all_of(x.data<S>(), x.data<S>() + x.numel(),
                       [](S value) { return std::isfinite(value); });
  });
  if (!finite) {
    throw NonFiniteLogits(
        "non-finite logits: the model's weights hold a NaN, an infinity or overflowing numbers");
  }
}

using Ids = std::vector<int64_t>;

// The ids of one row that the options keep, given its logits and probabilities: a part of
// `order`, whose size is the row's.
template <class S>
std::span<const int64_t> kept(const S* logits, const S* p, const SamplingOptions& options,
                              Ids& order) {
  const auto likelier = [logits](int64_t a, int64_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto begin = order.begin();
  auto end = order.end();
  if (options.top_k > 0 && options.top_k < std::ssize(order)) {
    end = begin + options.top_k;
    std::nth_element(begin, end, order.end(), likelier);
  }
  if (options.top_p >= 1) {
    return {begin, end};
  }
  const double total =
      std::accumulate(begin, end, 0.0, [p](double s, int64_t i) { return s + p[i]; });
  // Probabilities come from float32, so a sum that should be top_p exactly may fall short by
  // some of its roundings.
  constexpr double kRounding = 1e-6;
  // A heap gives the likeliest first without sorting the rest; they gather at the end.
  const auto below = [&](int64_t a, int64_t b) { return likelier(b, a); };
  std::make_heap(begin, end, below);
  auto first = end;
  double sum = 0;
  do {
    std::pop_heap(begin, first, below);
    --first;
    sum += p[*first] / total;
  } while (first != begin && sum < options.top_p - kRounding);
  return {first, end};
}

// p with 0 for the ids that the options leave out, each row's rest scaled to sum to 1.
// logits and p (B, V), contiguous -> (B, V).
Tensor filtered(const Tensor& logits, const Tensor& p, const SamplingOptions& options) {
  const int64_t V = p.size(1);
  Tensor result = zeros_like(p);
  Ids order(static_cast<size_t>(V));
  visit_floating(p.dtype(), [&]<class S>() {
    for (int64_t at = 0; at < p.numel(); at += V) {
      const S* const row = p.data<S>() + at;
      const auto ids = kept(logits.data<S>() + at, row, options, order);
      const double total = std::accumulate(ids.begin(), ids.end(), 0.0,
                                           [row](double s, int64_t i) { return s + row[i]; });
      for (const int64_t i : ids) {
        result.data<S>()[at + i] = static_cast<S>(row[i] / total);
      }
    }
  });
  return result;
}

// Floating (B, V) -> the same, contiguous and at least float32; refuses numbers that are no use.
Tensor checked_logits(const Tensor& logits) {
  check_floating("generate", logits, "logits");
  CHARGRAD_CHECK(logits.dim() == 2 && logits.size(1) > 0,
                 "generate: logits must have shape [B, V], got ", logits.shape());
  Tensor x = (logits.dtype() == kBFloat16 ? logits.to(kFloat32) : logits).contiguous();
  check_finite(x);
  return x;
}

// One id for each row of logits (B, V) -> (B, 1).
Tensor draw(const Tensor& logits, const SamplingOptions& options, std::span<Generator> generators) {
  if (is_greedy(options)) {
    return argmax(checked_logits(logits), 1, /*keepdim=*/true);
  }
  const Tensor p = next_probabilities(logits, options);
  if (generators.size() == 1) {
    return multinomial(p, 1, /*replacement=*/false, generators[0]);
  }
  std::vector<Tensor> ids;
  for (size_t i = 0; i < generators.size(); ++i) {
    ids.push_back(multinomial(narrow(p, 0, static_cast<int64_t>(i), 1), 1, /*replacement=*/false,
                              generators[i]));
  }
  return cat(ids, 0);
}

}  // namespace

Tensor next_probabilities(const Tensor& logits, const SamplingOptions& options) {
  check_options(options);
  const NoGradGuard no_grad;
  const Tensor x = checked_logits(logits);
  // Subtracting the maximum first keeps tiny temperatures finite.
  const Tensor shifted = x - amax(x, {1}, /*keepdim=*/true);
  const bool greedy = is_greedy(options);
  const Tensor p = softmax(greedy ? shifted : shifted / options.temperature, 1);
  SamplingOptions filter = options;
  filter.top_k = greedy ? 1 : options.top_k;
  const bool all = (filter.top_k == 0 || filter.top_k >= x.size(1)) && filter.top_p >= 1;
  return all ? p : filtered(x, p, filter);
}

std::vector<Generator> consecutive_streams(const Generator& first, int64_t count, int64_t tokens,
                                           int64_t vocab_size, const SamplingOptions& options) {
  // torch.multinomial takes one number of 64 bits for each id of the vocabulary.
  const int64_t draws = is_greedy(options) ? 0 : tokens * vocab_size;
  std::vector<Generator> streams = {first};
  while (std::ssize(streams) < count) {
    streams.push_back(streams.back());
    for (int64_t n = 0; n < draws; ++n) {
      streams.back().random64();
    }
  }
  return streams;
}

Tensor generate(const LanguageModel& model, const Tensor& ids, int64_t max_new_tokens,
                const SamplingOptions& options, Generator& generator, const OnToken& on_token) {
  return generate(model, ids, max_new_tokens, options, {&generator, 1}, on_token);
}

Tensor generate(const LanguageModel& model, const Tensor& ids, int64_t max_new_tokens,
                const SamplingOptions& options, std::span<Generator> generators,
                const OnToken& on_token) {
  CHARGRAD_CHECK(max_new_tokens >= 0, "generate: max_new_tokens must not be negative, got ",
                 max_new_tokens);
  CHARGRAD_CHECK(ids.dim() == 2 && ids.size(1) > 0,
                 "generate: ids must have shape [B, T] with T >= 1, got ", ids.shape());
  const int64_t B = ids.size(0);
  CHARGRAD_CHECK(generators.size() == 1 || std::ssize(generators) == B,
                 "generate: one generator or one a row is required, got ", generators.size(),
                 " for ", B, " rows");
  check_options(options);
  const NoGradGuard no_grad;
  const std::unique_ptr<Decoder> decoder = model.decoder(B);
  std::vector<int64_t> columns;  // what is drawn, one column of B after the other
  Tensor next = ids;
  for (int64_t i = 0; i < max_new_tokens; ++i) {
    next = draw(decoder->append(next), options, generators);  // (B, 1)
    const std::vector<int64_t> column = next.to_vector<int64_t>();
    columns.insert(columns.end(), column.begin(), column.end());
    if (on_token && !on_token(column)) {
      break;
    }
  }
  const int64_t drawn = std::ssize(columns) / std::max<int64_t>(B, 1);
  return cat({ids, from_vector(columns, {drawn, B}).transpose(0, 1)}, 1);
}

}  // namespace chargrad
