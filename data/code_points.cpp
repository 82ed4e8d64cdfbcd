#include "data/code_points.h"

#include <utf8.h>

#include <cstring>
#include <iterator>

namespace chargrad::data {

namespace {

// Controls, and the invisible characters that break lines or turn the direction of writing.
bool is_unprintable(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == kByteOrderMark;
}

// At least `width` hexadecimal digits.
std::string hex(uint32_t value, int width) {
  std::string digits;
  for (; value != 0 || width > 0; value /= 16, --width) {
    digits.insert(digits.begin(), "0123456789ABCDEF"[value % 16]);
  }
  return digits;
}

std::string escaped(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\'':
      return "\\'";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  if (is_unprintable(c)) {
    return "\\u{" + hex(c, 2) + "}";
  }
  std::string text;
  append_utf8(c, text);
  return text;
}

}  // namespace

bool is_code_point(int64_t value) {
  return value >= 0 && value <= 0x10FFFF && !(value >= 0xD800 && value <= 0xDFFF);
}

Decoded decode_utf8(std::string_view utf8, char32_t* out) {
  constexpr std::ptrdiff_t kWord = sizeof(uint64_t);
  constexpr uint64_t kHighBits = 0x8080808080808080;
  const char* next = utf8.data();
  const char* const end = next + utf8.size();
  char32_t* to = out;
  try {
    while (next != end) {
      // Most texts are mostly ASCII: eight characters at a time while no byte has its high bit.
      for (uint64_t word; end - next >= kWord; next += kWord, to += kWord) {
        std::memcpy(&word, next, sizeof(word));
        if ((word & kHighBits) != 0) {
          break;
        }
        for (std::ptrdiff_t i = 0; i < kWord; ++i) {
          to[i] = static_cast<unsigned char>(next[i]);
        }
      }
      if (next != end) {
        *to = utf8::next(next, end);
        ++to;
      }
    }
  } catch (const utf8::exception&) {
    // `next` still stands at the first byte of what could not be read.
  }
  return {static_cast<std::size_t>(next - utf8.data()), static_cast<std::size_t>(to - out)};
}

bool is_utf8(std::string_view text) {
  return utf8::is_valid(text.begin(), text.end());
}

void append_utf8(char32_t c, std::string& utf8) {
  utf8::append(c, std::back_inserter(utf8));
}

std::string describe(char32_t c) {
  std::string text(1, '\'');
  return text.append(escaped(c)).append("' (U+").append(hex(c, 4)).append(")");
}

std::string printable(std::string_view text, std::size_t longest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line;
  while (!text.empty()) {
    const char* next = text.data();
    bool is_shown = true;
    try {
      is_shown = !is_unprintable(utf8::next(next, text.data() + text.size()));
    } catch (const utf8::exception&) {
      next = text.data() + 1;
      is_shown = false;
    }
    const std::string_view bytes = text.substr(0, static_cast<std::size_t>(next - text.data()));
    std::string piece;
    for (const char byte : bytes) {
      const auto value = static_cast<unsigned char>(byte);
      piece += is_shown ? std::string(1, byte)
                        : std::string{'\\', 'x', kDigits[value / 16], kDigits[value % 16]};
    }
    if (line.size() + piece.size() > longest) {
      return line + "...";
    }
    line += piece;
    text.remove_prefix(bytes.size());
  }
  return line;
}

std::string describe_invalid_utf8(char byte, int64_t offset) {
  return "not valid UTF-8: byte 0x" + hex(static_cast<unsigned char>(byte), 2) + " at offset " +
         std::to_string(offset);
}

}  // namespace chargrad::data
