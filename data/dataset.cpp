#include "data/dataset.h"

#include <algorithm>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

namespace chargrad::data {

namespace {

// Appends the ids of `characters`; false if one has none.
template <class Id>
bool append_ids(std::span<const char32_t> characters, const Vocab& vocab, std::vector<Id>& ids) {
  const std::size_t start = ids.size();
  ids.resize(start + characters.size());
  Id* to = ids.data() + start;
  for (const char32_t c : characters) {
    const int64_t id = vocab.find(c);
    if (id < 0) {
      return false;
    }
    *to++ = static_cast<Id>(id);
  }
  return true;
}

}  // namespace

const char* split_name(Split split) {
  return split == Split::kTrain ? "training" : "validation";
}

Dataset::Dataset(std::string path, Vocab vocab) : path_(std::move(path)), vocab_(std::move(vocab)) {
  if (vocab_.size() > int64_t{std::numeric_limits<uint16_t>::max()} + 1) {
    ids_.emplace<std::vector<uint32_t>>();
  } else if (vocab_.size() > int64_t{std::numeric_limits<uint8_t>::max()} + 1) {
    ids_.emplace<std::vector<uint16_t>>();
  }
}

Dataset Dataset::load(const std::string& path, const ByteSink& on_bytes, int64_t block_bytes) {
  TextFile file(path, block_bytes);
  VocabBuilder builder;
  const int64_t file_bytes = file.read([&builder](auto block) { builder.add(block); }, on_bytes);
  if (builder.count() == 0) {
    throw std::runtime_error(file.name() + " is empty" +
                             (file_bytes > 0 ? " but for a byte-order mark" : ""));
  }
  Dataset dataset(file.name(), builder.build());
  dataset.file_bytes_ = file_bytes;
  const auto count = static_cast<std::size_t>(builder.count());
  const Vocab& vocab = dataset.vocab_;
  std::visit(
      [&file, &vocab, count](auto& ids) {
        try {
          ids.reserve(count);
        } catch (const std::bad_alloc&) {
          throw std::runtime_error(file.name() +
                                   " is too large for the memory: " + std::to_string(count) +
                                   " characters of " + std::to_string(sizeof(ids[0])) + " bytes");
        }
        file.read([&file, &vocab, &ids, count](std::span<const char32_t> block) {
          if (block.size() > count - ids.size() || !append_ids(block, vocab, ids)) {
            file.fail_changed();
          }
        });
        if (ids.size() != count) {
          file.fail_changed();
        }
      },
      dataset.ids_);
  return dataset;
}

int64_t Dataset::bytes_per_id() const {
  return std::visit([](const auto& ids) { return static_cast<int64_t>(sizeof(ids[0])); }, ids_);
}

int64_t Dataset::size() const {
  return std::visit([](const auto& ids) { return static_cast<int64_t>(ids.size()); }, ids_);
}

int64_t Dataset::size(Split split) const {
  const int64_t validation = size() / 10 + (size() % 10 != 0 ? 1 : 0);  // n - int(0.9 n)
  return split == Split::kVal ? validation : size() - validation;
}

int64_t Dataset::window_count(Split split, int64_t block_size) const {
  return std::max<int64_t>(size(split) - block_size, 0);
}

void Dataset::check_fits(int64_t block_size) const {
  if (block_size < 1) {
    throw std::invalid_argument("block_size must be at least 1, got " + std::to_string(block_size));
  }
  for (const Split split : {Split::kTrain, Split::kVal}) {
    if (window_count(split, block_size) == 0) {
      throw std::invalid_argument(
          path_ + " is too short: its " + split_name(split) + " split has " +
          std::to_string(size(split)) + " of " + std::to_string(size()) +
          " characters, block_size " + std::to_string(block_size) + " needs at least " +
          std::to_string(static_cast<uint64_t>(block_size) + 1) + " in each split");
    }
  }
}

void Dataset::window(Split split, int64_t offset, int64_t length, int64_t* out) const {
  if (offset < 0 || length < 0 || length > size(split) || offset > size(split) - length) {
    throw std::invalid_argument("window: offset " + std::to_string(offset) + " and length " +
                                std::to_string(length) + " do not lie in the " + split_name(split) +
                                " split of " + std::to_string(size(split)) + " characters");
  }
  const int64_t first = offset + (split == Split::kVal ? size(Split::kTrain) : 0);
  std::visit(
      [first, length, out](const auto& ids) { std::copy_n(ids.begin() + first, length, out); },
      ids_);
}

}  // namespace chargrad::data
