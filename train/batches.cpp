#include "train/batches.h"

#include "engine/ops.h"

namespace chargrad::train {

std::vector<int64_t> Batches::draw(data::Split split, Generator& generator) const {
  const int64_t windows = dataset_.window_count(split, block_size_);
  return randint(0, windows, {batch_size_}, generator).to_vector<int64_t>();
}

Batch Batches::at(data::Split split, const std::vector<int64_t>& offsets) const {
  const auto rows = static_cast<int64_t>(offsets.size());
  Batch batch{empty({rows, block_size_}, kInt64), empty({rows, block_size_}, kInt64)};
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t offset = offsets[static_cast<size_t>(row)];
    const int64_t at = row * block_size_;
    dataset_.window(split, offset, block_size_, batch.inputs.data<int64_t>() + at);
    dataset_.window(split, offset + 1, block_size_, batch.targets.data<int64_t>() + at);
  }
  return batch;
}

}  // namespace chargrad::train
