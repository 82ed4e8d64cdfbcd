// Random windows of a text as training batches.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "engine/generator.h"
#include "engine/tensor.h"

namespace chargrad::train {

struct Batch {
  Tensor inputs;   // (batch_size, block_size) int64
  Tensor targets;  // the same windows one character on
};

// Requires: the dataset outlives this and fits the block size (Dataset::check_fits).
class Batches {
 public:
  Batches(const data::Dataset& dataset, int64_t batch_size, int64_t block_size)
      : dataset_(dataset), batch_size_(batch_size), block_size_(block_size) {}

  // Start offsets of the next batch: one draw a row, as nanoGPT's get_batch.
  std::vector<int64_t> draw(data::Split split, Generator& generator) const;
  Batch at(data::Split split, const std::vector<int64_t>& offsets) const;

  int64_t tokens() const { return batch_size_ * block_size_; }

 private:
  const data::Dataset& dataset_;
  int64_t batch_size_;
  int64_t block_size_;
};

}  // namespace chargrad::train
