#include "train/head_metrics.h"

#include <cmath>

#include "engine/ops.h"
#include "models/head_lm.h"

namespace chargrad::train {
namespace {

// Mean over the rows of -sum w log w, where 0 log 0 is 0.
double mean_entropy(const Tensor& weights) {
  const Tensor w = weights.to(kFloat32);
  const Tensor logs = log(masked_fill(w, eq(w, 0), 1));
  return mean(neg(sum(w * logs, {-1}))).item();
}

double norm(const Tensor& gradient) {
  return std::sqrt(sum(pow(gradient.to(kFloat64), 2)).item());
}

}  // namespace

std::optional<HeadMetrics> head_metrics(const LanguageModel& model, const Tensor& inputs,
                                        const Tensor& targets) {
  const auto* head_model = dynamic_cast<const HeadLM*>(&model);
  if (head_model == nullptr) {
    return std::nullopt;
  }
  const Head& head = head_model->sa_head;
  const Grads gradients = grad({model.loss(inputs, targets)}, {head.query.weight, head.key.weight});
  const NoGradGuard no_grad;
  return HeadMetrics{mean_entropy(head_model->attention_weights(inputs)), norm(gradients[0]),
                     norm(gradients[1])};
}

}  // namespace chargrad::train
