// Unicode code points and UTF-8: decoding, encoding, and how a character looks in a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chargrad::data {

// U+FEFF. At the start of a file it marks the encoding and is no part of the text.
inline constexpr char32_t kByteOrderMark = 0xFEFF;

// A character takes at most this many bytes.
inline constexpr std::size_t kMaxUtf8Bytes = 4;

// True for 0 .. 0x10FFFF without the surrogates 0xD800 .. 0xDFFF: what UTF-8 can hold.
bool is_code_point(int64_t value);

struct Decoded {
  std::size_t bytes;       // read from the front of the input
  std::size_t characters;  // written to the output
};

// Decodes `utf8` up to its end or to the first byte that does not start a complete, valid
// character (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF). A rest of fewer
// than kMaxUtf8Bytes bytes may be a character that is cut off; a longer one is invalid.
// Requires: `out` has room for utf8.size() characters.
Decoded decode_utf8(std::string_view utf8, char32_t* out);

// True if all of the text is valid characters; the empty one is.
bool is_utf8(std::string_view text);

// Requires: is_code_point(c).
void append_utf8(char32_t c, std::string& utf8);

// "'?' (U+003F)"; what would not show or would disturb a terminal is escaped: "'\n' (U+000A)",
// "'\u{202E}' (U+202E)". Requires: is_code_point(c).
std::string describe(char32_t c);

// The text for an error message: one line, controls, invisible characters and bytes that are not
// UTF-8 as \xNN. What would be longer than about `longest` bytes ends in "...".
std::string printable(std::string_view text, std::size_t longest);

// "not valid UTF-8: byte 0x92 at offset 1"; offsets count bytes from 0.
std::string describe_invalid_utf8(char byte, int64_t offset);

}  // namespace chargrad::data
