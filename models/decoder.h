// Decoder: the state of a text that grows id by id.
#pragma once

#include <optional>

#include "engine/tensor.h"

namespace chargrad {

// B texts of one length under one model, which outlives the decoder and must not change
// meanwhile. Made by LanguageModel::decoder; works in the autocast dtype of that moment and
// records no graph. Memory is taken for the last block of ids alone. Not thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Appends ids (B, T), T >= 1, and returns the logits after the last one (B, V): bit for bit
  // model.next_logits of the last block_size ids, whatever the steps in which they came.
  Tensor append(const Tensor& ids);

 protected:
  Decoder(int64_t batch, int64_t block_size);

  // Logits (B, V) after `context` (B, T), T in [1, block_size]. With only_last_is_new the call
  // before had all of it but the last id.
  virtual Tensor logits(const Tensor& context, bool only_last_is_new) = 0;

 private:
  void store(const Tensor& ids);

  int64_t block_size_;
  std::optional<DType> autocast_;
  Tensor ids_;  // (B, 2 block_size); the context is the last block of [0, end_)
  int64_t end_ = 0;
  bool in_step_ = false;  // the last call returned logits of what is stored
};

}  // namespace chargrad
