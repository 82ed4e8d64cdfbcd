// The symbols of a text: which character has which id.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chargrad::data {

// Distinct code points in ascending order; the id of one is its place in that order, from 0.
// Never empty. Immutable, so any number of threads may use it.
class Vocab {
 public:
  // The characters that occur in `utf8`. Throws std::invalid_argument if the text is empty or not
  // valid UTF-8.
  static Vocab from_text(std::string_view utf8);

  // From numbers that nobody has checked yet, such as those of a stored vocabulary. Throws
  // std::invalid_argument unless there is at least one, each is a code point, and each is above
  // the one before.
  static Vocab from_code_points(std::span<const int64_t> code_points);

  int64_t size() const { return static_cast<int64_t>(code_points_.size()); }

  // Element i is the character with id i.
  const std::vector<char32_t>& code_points() const { return code_points_; }

  // The id of `c`, or -1.
  int64_t find(char32_t c) const { return c < ids_.size() ? ids_[c] : -1; }

  // The id of the newline, or 0 where the vocabulary has none: what generation starts from when
  // nothing was given to it.
  int64_t start_id() const;

  // One id per character. Throws std::invalid_argument for the first character that has none
  // (naming it and its position in characters, from 0) and for invalid UTF-8 (naming the offset
  // in bytes); `who` opens the message.
  std::vector<int64_t> encode(std::string_view utf8, std::string_view who = "encode") const;

  // The UTF-8 text of `ids`; decode(encode(x)) is x. Throws std::invalid_argument for an id
  // outside [0, size()).
  std::string decode(std::span<const int64_t> ids) const;
  std::string decode(int64_t id) const;

  friend bool operator==(const Vocab& a, const Vocab& b) {
    return a.code_points_ == b.code_points_;
  }

 private:
  friend class VocabBuilder;
  explicit Vocab(std::vector<char32_t> code_points);

  std::vector<char32_t> code_points_;
  std::vector<int32_t> ids_;  // by code point up to the largest; -1 where it has none
};

// Collects the vocabulary of a text that comes in pieces.
class VocabBuilder {
 public:
  VocabBuilder();

  // Requires: every character is a code point (see is_code_point).
  void add(std::span<const char32_t> characters);

  // Characters added so far, repeated ones included.
  int64_t count() const { return count_; }

  // Requires: count() > 0.
  Vocab build() const;

 private:
  std::vector<uint8_t> seen_;  // by code point; bytes, because setting a bit takes three steps
  int64_t count_ = 0;
};

}  // namespace chargrad::data
