#include "data/vocab.h"

#include <stdexcept>
#include <utility>

#include "data/code_points.h"

namespace chargrad::data {

namespace {

std::vector<char32_t> decode_all(std::string_view who, std::string_view utf8) {
  std::vector<char32_t> characters(utf8.size());
  const Decoded decoded = decode_utf8(utf8, characters.data());
  if (decoded.bytes != utf8.size()) {
    throw std::invalid_argument(
        std::string(who) + ": the text is " +
        describe_invalid_utf8(utf8[decoded.bytes], static_cast<int64_t>(decoded.bytes)));
  }
  characters.resize(decoded.characters);
  return characters;
}

}  // namespace

Vocab::Vocab(std::vector<char32_t> code_points) : code_points_(std::move(code_points)) {
  ids_.assign(std::size_t{code_points_.back()} + 1, -1);
  int32_t id = 0;
  for (const char32_t c : code_points_) {
    ids_[c] = id++;
  }
}

Vocab Vocab::from_text(std::string_view utf8) {
  VocabBuilder builder;
  builder.add(decode_all("vocabulary", utf8));
  if (builder.count() == 0) {
    throw std::invalid_argument("vocabulary: the text is empty");
  }
  return builder.build();
}

Vocab Vocab::from_code_points(std::span<const int64_t> code_points) {
  if (code_points.empty()) {
    throw std::invalid_argument("vocabulary: it must have at least one symbol, got none");
  }
  std::vector<char32_t> checked;
  int64_t previous = -1;
  for (const int64_t value : code_points) {
    const std::string at = " at position " + std::to_string(checked.size());
    if (!is_code_point(value)) {
      throw std::invalid_argument("vocabulary: " + std::to_string(value) + at +
                                  " is not a Unicode code point");
    }
    if (value <= previous) {
      throw std::invalid_argument("vocabulary: code points must ascend, got " +
                                  std::to_string(value) + at + " after " +
                                  std::to_string(previous));
    }
    checked.push_back(static_cast<char32_t>(value));
    previous = value;
  }
  return Vocab(std::move(checked));
}

int64_t Vocab::start_id() const {
  const int64_t newline = find('\n');
  return newline >= 0 ? newline : 0;
}

std::vector<int64_t> Vocab::encode(std::string_view utf8, std::string_view who) const {
  std::vector<int64_t> ids;
  for (const char32_t c : decode_all(who, utf8)) {
    const int64_t id = find(c);
    if (id < 0) {
      throw std::invalid_argument(std::string(who) + ": " + describe(c) + " at position " +
                                  std::to_string(ids.size()) + " is not in the vocabulary");
    }
    ids.push_back(id);
  }
  return ids;
}

std::string Vocab::decode(std::span<const int64_t> ids) const {
  std::string utf8;
  for (const int64_t id : ids) {
    if (id < 0 || id >= size()) {
      throw std::invalid_argument("decode: id " + std::to_string(id) + " is outside [0, " +
                                  std::to_string(size()) + ")");
    }
    append_utf8(code_points_[static_cast<std::size_t>(id)], utf8);
  }
  return utf8;
}

std::string Vocab::decode(int64_t id) const {
  return decode(std::span(&id, 1));
}

VocabBuilder::VocabBuilder() : seen_(0x110000) {}

void VocabBuilder::add(std::span<const char32_t> characters) {
  for (const char32_t c : characters) {
    seen_[c] = 1;
  }
  count_ += static_cast<int64_t>(characters.size());
}

Vocab VocabBuilder::build() const {
  std::vector<char32_t> code_points;
  for (std::size_t c = 0; c < seen_.size(); ++c) {
    if (seen_[c] != 0) {
      code_points.push_back(static_cast<char32_t>(c));
    }
  }
  return Vocab(std::move(code_points));
}

}  // namespace chargrad::data
