// What attention has seen of texts that grow: keys and values of one layer, as decoding keeps them.
#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace chargrad {

// Room for `positions` positions of `batch` texts, taken at the first keep. Not thread-safe.
class KeyValueCache {
 public:
  KeyValueCache(int64_t batch, int64_t n_head, int64_t positions);

  // Keeps keys and values kv (B, t, 2 C), side by side, as those of positions first, first + 1, ...
  // Positions from there on are forgotten; those before must be there, of the same C and dtype.
  void keep(const Tensor& kv, int64_t first);

  // What queries q (B, 1, C), one a text, take from all positions kept -> (B, 1, C): bit for bit
  // scaled_dot_product_attention of their heads. Records no graph.
  Tensor attend(const Tensor& q) const;

 private:
  int64_t batch_;
  int64_t n_head_;
  int64_t positions_;
  int64_t seen_ = 0;
  // (B, H, D, positions), as a product with a query reads them, and (B, H, positions, D).
  Tensor keys_, values_;
};

}  // namespace chargrad
