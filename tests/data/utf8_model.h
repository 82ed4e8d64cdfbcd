// UTF-8 written down a second time, as plainly as RFC 3629 states it: what the tests compare with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace chargrad::data {

inline std::string model_encode(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    return {static_cast<char>(c)};
  }
  if (c < 0x800) {
    return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
  }
  if (c < 0x10000) {
    return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

inline std::string model_encode(const std::u32string& text) {
  std::string utf8;
  for (const char32_t c : text) {
    utf8 += model_encode(uint32_t{c});
  }
  return utf8;
}

// The character at the front of `utf8`, and its length; length 0 if there is no valid one.
struct ModelCharacter {
  char32_t value;
  std::size_t length;
};

// A character is what encodes to exactly these bytes, so overlong forms need no rule of their own.
inline ModelCharacter model_front(std::string_view utf8) {
  const uint8_t lead = utf8.empty() ? 0xFF : static_cast<uint8_t>(utf8[0]);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xC0 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF8 ? 4
                                           : 0;
  if (length == 0 || utf8.size() < length) {
    return {0, 0};
  }
  uint32_t c = length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    c = (c << 6) | (static_cast<uint8_t>(utf8[i]) & 0x3FU);
  }
  const bool is_surrogate = c >= 0xD800 && c <= 0xDFFF;
  if (is_surrogate || c > 0x10FFFF || model_encode(c) != utf8.substr(0, length)) {
    return {0, 0};
  }
  return {static_cast<char32_t>(c), length};
}

// The characters at the front of `utf8`; `*bytes` is the length of what they take.
inline std::u32string model_decode(std::string_view utf8, std::size_t* bytes) {
  std::u32string text;
  *bytes = 0;
  for (;;) {
    const ModelCharacter front = model_front(utf8.substr(*bytes));
    if (front.length == 0) {
      return text;
    }
    text += front.value;
    *bytes += front.length;
  }
}

}  // namespace chargrad::data
