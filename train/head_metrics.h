// What an evaluation says of a head model beside its losses: how sharp its attention is, and what
// gradient reaches queries and keys.
#pragma once

#include <optional>

#include "models/language_model.h"

namespace chargrad::train {

struct HeadMetrics {
  double attention_entropy;  // Mean over rows, in nats; row t can reach log(t + 1).
  double grad_norm_query;    // Of the loss with respect to W_q.
  double grad_norm_key;
};

// Of a HeadLM on one batch (B, T); nothing for another model. Touches no .grad and draws no random
// number.
std::optional<HeadMetrics> head_metrics(const LanguageModel& model, const Tensor& inputs,
                                        const Tensor& targets);

}  // namespace chargrad::train
