// Drawing ids from a language model.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/generator.h"
#include "models/language_model.h"

namespace chargrad {

struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0 takes the likeliest id
  int64_t top_k = 0;       // keeps the k likeliest ids, of equal ones the smaller; 0 keeps all
  // Keeps the fewest likeliest ids whose probabilities, after temperature and top_k, reach top_p
  // together; at least one. 1 keeps all.
  double top_p = 1;
};

// A logit is NaN or infinite.
class NonFiniteLogits : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Probabilities of the next id, 0 for ids that the options leave out.
//   logits (B, V) -> (B, V), rows that sum to 1, in logits' dtype (float32 for bfloat16).
// Throws NonFiniteLogits where a logit is, and std::invalid_argument for a temperature < 0 or not
// finite, top_k < 0, or top_p outside [0, 1].
Tensor next_probabilities(const Tensor& logits, const SamplingOptions& options);

// Told of each new column (B) of ids as it is drawn; false ends the generation early.
using OnToken = std::function<bool(const std::vector<int64_t>&)>;

// Extends each row of ids (B, T) by max_new_tokens drawn ids -> (B, T + max_new_tokens). A
// context longer than the model's block is cropped to its last block. Temperature 0 draws
// nothing from the generator. The model should be in evaluation mode; no graph is recorded.
// As nanoGPT's generate: temperature, then top_k, softmax, torch.multinomial.
Tensor generate(const LanguageModel& model, const Tensor& ids, int64_t max_new_tokens,
                const SamplingOptions& options = {}, Generator& generator = default_generator(),
                const OnToken& on_token = {});

// The same with a generator for each row: every row comes out as it would alone.
Tensor generate(const LanguageModel& model, const Tensor& ids, int64_t max_new_tokens,
                const SamplingOptions& options, std::span<Generator> generators,
                const OnToken& on_token = {});

// Generators for `count` texts of `tokens` drawn ids that are generated together and shall be
// those that `first` gives one after the other: each starts where the one before ends, and where
// the last one ends after the generation, `first` would.
std::vector<Generator> consecutive_streams(const Generator& first, int64_t count, int64_t tokens,
                                           int64_t vocab_size, const SamplingOptions& options);

}  // namespace chargrad
