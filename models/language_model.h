// What train, sample and generate ask of a model.
#pragma once

#include <memory>

#include "models/decoder.h"
#include "nn/module.h"

namespace chargrad {

// Predicts the next id from the ids before it. Not thread-safe.
class LanguageModel : public nn::Module {
 public:
  // ids (B, T) int64 in [0, vocab_size) -> logits (B, T, V). T must be in [1, block_size].
  virtual Tensor forward(const Tensor& ids) const = 0;

  // ids (B, T) -> logits after the last position (B, V).
  virtual Tensor next_logits(const Tensor& ids) const;

  // For texts that grow: see Decoder. The model should be in evaluation mode. This one computes
  // each context anew.
  virtual std::unique_ptr<Decoder> decoder(int64_t batch) const;

  // Longest context: what goes beyond it, the caller crops.
  virtual int64_t block_size() const = 0;
  virtual int64_t vocab_size() const = 0;

  // Mean cross-entropy, in nats. ids and targets (B, T) -> [].
  Tensor loss(const Tensor& ids, const Tensor& targets) const;

 protected:
  // Throws unless ids is int64 (B, T) with T in [1, block_size()].
  void check_ids(const char* model, const Tensor& ids) const;
};

}  // namespace chargrad
