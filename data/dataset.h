// A text as ids, its training and validation split, and windows into them.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "data/text_file.h"
#include "data/vocab.h"

namespace chargrad::data {

// The first int(0.9 n) of n characters are for training, the rest for validation.
enum class Split { kTrain, kVal };

// "training" or "validation".
const char* split_name(Split split);

// The text of one file: 1 byte a character for up to 256 symbols, 2 for up to 65,536, else 4, and
// nothing else of that order of size, while loading neither. Immutable, so any number of threads
// may use it.
class Dataset {
 public:
  // Reads the file twice, first for its symbols, then for their ids. `on_bytes` (may be empty)
  // gets every byte of the file once, in order, in blocks of `block_bytes`; a checksum can be made
  // of them. Throws std::runtime_error for a file that TextFile refuses and for an empty one.
  static Dataset load(const std::string& path, const ByteSink& on_bytes = {},
                      int64_t block_bytes = TextFile::kBlockBytes);

  const Vocab& vocab() const { return vocab_; }
  int64_t file_bytes() const { return file_bytes_; }  // a byte-order mark included
  int64_t bytes_per_id() const;

  // Characters in all, and in one split.
  int64_t size() const;
  int64_t size(Split split) const;

  // How many start offsets o in [0, count) a window may have for which both the inputs
  // [o, o + block_size) and the targets [o + 1, o + block_size + 1) lie in the split.
  // Requires: block_size >= 1.
  int64_t window_count(Split split, int64_t block_size) const;

  // Throws std::invalid_argument unless block_size >= 1 and each split has at least one window.
  void check_fits(int64_t block_size) const;

  // Writes the `length` ids from `offset` of the split to `out`. Throws std::invalid_argument
  // unless they lie in the split.
  void window(Split split, int64_t offset, int64_t length, int64_t* out) const;

 private:
  Dataset(std::string path, Vocab vocab);

  std::string path_;  // for messages
  Vocab vocab_;
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<uint32_t>> ids_;
  int64_t file_bytes_ = 0;
};

}  // namespace chargrad::data
