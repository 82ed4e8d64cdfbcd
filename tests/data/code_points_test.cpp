#include "data/code_points.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/data/utf8_model.h"

namespace chargrad::data {
namespace {

// First and last of each length, of the surrogate gap, and code points that some decoders refuse
// although they are valid: noncharacters and the byte-order mark.
const std::vector<uint32_t> kBorders = {0x0,    0x7F,   0x80,   0x7FF,  0x800,   0xD7FF,  0xE000,
                                        0xFDD0, 0xFEFF, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF};

std::u32string decode_prefix(std::string_view utf8, std::size_t* bytes) {
  std::u32string out(utf8.size(), U'\0');
  const Decoded decoded = decode_utf8(utf8, out.data());
  *bytes = decoded.bytes;
  out.resize(decoded.characters);
  return out;
}

TEST(CodePoints, IsCodePoint) {
  for (const uint32_t c : kBorders) {
    EXPECT_TRUE(is_code_point(c)) << c;
  }
  for (const int64_t c : {int64_t{-1}, int64_t{0xD800}, int64_t{0xDFFF}, int64_t{0x110000},
                          int64_t{1} << 32, INT64_MIN, INT64_MAX}) {
    EXPECT_FALSE(is_code_point(c)) << c;
  }
}

TEST(CodePoints, BordersBothWays) {
  for (const uint32_t c : kBorders) {
    std::string utf8;
    append_utf8(static_cast<char32_t>(c), utf8);
    EXPECT_EQ(utf8, model_encode(c)) << c;
    std::size_t bytes = 0;
    EXPECT_EQ(decode_prefix(utf8, &bytes), std::u32string(1, static_cast<char32_t>(c))) << c;
    EXPECT_EQ(bytes, utf8.size()) << c;
  }
}

TEST(CodePoints, StopsAtInvalidForms) {
  const std::vector<std::string> invalid = {
      "\x80",              // a continuation byte alone
      "\x92",              // a quotation mark of Windows-1252
      "\xC0\x80",          // overlong U+0000
      "\xC1\xBF",          // overlong U+007F
      "\xE0\x80\x80",      // overlong U+0000
      "\xE0\x9F\xBF",      // overlong U+07FF
      "\xF0\x8F\xBF\xBF",  // overlong U+FFFF
      "\xED\xA0\x80",      // the surrogate U+D800
      "\xED\xBF\xBF",      // the surrogate U+DFFF
      "\xF4\x90\x80\x80",  // U+110000
      "\xF5\x80\x80\x80",  // leads that no character has
      "\xF8\x88\x80\x80\x80",
      "\xFE",
      "\xFF",
      "\xC3z",          // a character cut off by the next one
      "\xE6\x97z",      //
      "\xF0\x9F\x98z",  //
  };
  for (const std::string& form : invalid) {
    for (const std::string& before : {std::string(), std::string("ab"), std::string(11, 'x')}) {
      std::size_t bytes = 0;
      EXPECT_EQ(decode_prefix(before + form + "more of the text", &bytes).size(), before.size())
          << testing::PrintToString(form);
      EXPECT_EQ(bytes, before.size()) << testing::PrintToString(form);
    }
  }
}

TEST(CodePoints, StopsBeforeCutCharacter) {
  for (const std::string& whole :
       {std::string("\xC3\xA9"), std::string("\xE6\x97\xA5"), std::string("\xF0\x9F\x98\x80")}) {
    for (std::size_t length = 1; length < whole.size(); ++length) {
      std::size_t bytes = 0;
      EXPECT_EQ(decode_prefix("ab" + whole.substr(0, length), &bytes), U"ab");
      EXPECT_EQ(bytes, 2U);
    }
  }
}

// One character of two bytes at each place of a run of ASCII, and runs of each length.
TEST(CodePoints, AsciiRuns) {
  for (std::size_t length = 0; length < 40; ++length) {
    for (std::size_t place = 0; place <= length; ++place) {
      std::u32string text(length, U'a');
      text.insert(place, 1, U'é');
      const std::string utf8 = model_encode(text);
      std::size_t bytes = 0;
      ASSERT_EQ(decode_prefix(utf8, &bytes), text) << length << ' ' << place;
      ASSERT_EQ(bytes, utf8.size()) << length << ' ' << place;
    }
  }
}

// Bytes that are often, but not always, parts of valid characters.
TEST(CodePoints, RandomBytesAgainstModel) {
  const std::string alphabet =
      "ab\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF4\xF5\xFF";
  std::mt19937 random(1);
  std::size_t characters = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string utf8;
    for (std::size_t i = random() % 24; i > 0; --i) {
      utf8 += random() % 4 == 0 ? alphabet[random() % alphabet.size()] : 'z';
    }
    std::size_t bytes = 0;
    std::size_t model_bytes = 0;
    const std::u32string text = decode_prefix(utf8, &bytes);
    ASSERT_EQ(text, model_decode(utf8, &model_bytes)) << testing::PrintToString(utf8);
    ASSERT_EQ(bytes, model_bytes) << testing::PrintToString(utf8);
    ASSERT_EQ(is_utf8(utf8), model_bytes == utf8.size()) << testing::PrintToString(utf8);
    characters += text.size();
  }
  EXPECT_GT(characters, 20000U);  // the comparison was not of empty texts
}

TEST(CodePoints, Describe) {
  EXPECT_EQ(describe(U'?'), "'?' (U+003F)");
  EXPECT_EQ(describe(U'日'), "'日' (U+65E5)");
  EXPECT_EQ(describe(U'😀'), "'😀' (U+1F600)");
  EXPECT_EQ(describe(U'\n'), R"('\n' (U+000A))");
  EXPECT_EQ(describe(U'\r'), R"('\r' (U+000D))");
  EXPECT_EQ(describe(U'\t'), R"('\t' (U+0009))");
  EXPECT_EQ(describe(U'\''), R"('\'' (U+0027))");
  EXPECT_EQ(describe(U'\\'), R"('\\' (U+005C))");
  EXPECT_EQ(describe(0), R"('\u{00}' (U+0000))");
  EXPECT_EQ(describe(0x1B), R"('\u{1B}' (U+001B))");
  EXPECT_EQ(describe(0x7F), R"('\u{7F}' (U+007F))");
  EXPECT_EQ(describe(0x85), R"('\u{85}' (U+0085))");
  EXPECT_EQ(describe(0xAD), R"('\u{AD}' (U+00AD))");
  EXPECT_EQ(describe(0x200B), R"('\u{200B}' (U+200B))");
  EXPECT_EQ(describe(0x202E), R"('\u{202E}' (U+202E))");
  EXPECT_EQ(describe(0x2066), R"('\u{2066}' (U+2066))");
  EXPECT_EQ(describe(kByteOrderMark), R"('\u{FEFF}' (U+FEFF))");
}

TEST(CodePoints, Printable) {
  EXPECT_EQ(printable("a/日 b", 60), "a/日 b");
  EXPECT_EQ(printable("\x1b[1m\x7f", 60), R"(\x1b[1m\x7f)");
  EXPECT_EQ(printable("\xC2\x85\xE2\x80\xAE", 60), R"(\xc2\x85\xe2\x80\xae)");
  EXPECT_EQ(printable("\xFFz\xE6\x97", 60), R"(\xffz\xe6\x97)");
  EXPECT_EQ(printable("日日", 5), "日...");
  EXPECT_EQ(printable("", 0), "");
}

TEST(CodePoints, DescribeInvalidUtf8) {
  EXPECT_EQ(describe_invalid_utf8('\x92', 1), "not valid UTF-8: byte 0x92 at offset 1");
  EXPECT_EQ(describe_invalid_utf8('\xFF', int64_t{1} << 40),
            "not valid UTF-8: byte 0xFF at offset 1099511627776");
}

}  // namespace
}  // namespace chargrad::data
