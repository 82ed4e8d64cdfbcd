#include "models/language_model.h"

#include "engine/ops.h"

namespace chargrad {
namespace {

class RecomputingDecoder : public Decoder {
 public:
  RecomputingDecoder(const LanguageModel& model, int64_t batch)
      : Decoder(batch, model.block_size()), model_(model) {}

 private:
  Tensor logits(const Tensor& context, bool /*only_last_is_new*/) override {
    return model_.next_logits(context);
  }

  const LanguageModel& model_;
};

}  // namespace

Tensor LanguageModel::next_logits(const Tensor& ids) const {
  return select(forward(ids), 1, -1);  // (B, V)
}

std::unique_ptr<Decoder> LanguageModel::decoder(int64_t batch) const {
  return std::make_unique<RecomputingDecoder>(*this, batch);
}

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets) const {
  return cross_entropy(forward(ids), targets);
}

void LanguageModel::check_ids(const char* model, const Tensor& ids) const {
  CHARGRAD_CHECK(ids.dtype() == kInt64 && ids.dim() == 2, model,
                 ": ids must be int64 of shape [B, T], got ", dtype_name(ids.dtype()), " of shape ",
                 ids.shape());
  CHARGRAD_CHECK(ids.size(1) >= 1 && ids.size(1) <= block_size(), model,
                 ": the context length must be in [1, ", block_size(), "], got ", ids.size(1));
}

}  // namespace chargrad
