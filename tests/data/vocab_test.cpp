#include "data/vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/data/utf8_model.h"
#include "tests/error_text.h"

namespace chargrad::data {
namespace {

using testing::ElementsAre;
using Ids = std::vector<int64_t>;

std::string encode_error(const Vocab& vocab, const std::string& text) {
  return error_text<std::invalid_argument>([&] { vocab.encode(text); });
}

std::string list_error(const Ids& code_points) {
  return error_text<std::invalid_argument>([&] { Vocab::from_code_points(code_points); });
}

TEST(Vocab, SortedDistinctCodePoints) {
  const Vocab vocab = Vocab::from_text("héé—日本\nhéé—日本\n");
  EXPECT_EQ(vocab.size(), 6);
  EXPECT_THAT(vocab.code_points(), ElementsAre(U'\n', U'h', U'é', U'—', U'日', U'本'));
  EXPECT_EQ(vocab, Vocab::from_text("本日—éh\n"));
  EXPECT_FALSE(vocab == Vocab::from_text("本日—éh"));
}

TEST(Vocab, CarriageReturnIsASymbol) {
  EXPECT_THAT(Vocab::from_text("ab\r\n").code_points(), ElementsAre(U'\n', U'\r', U'a', U'b'));
}

TEST(Vocab, FromTextRefuses) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { Vocab::from_text(""); }),
            "vocabulary: the text is empty");
  EXPECT_EQ(error_text<std::invalid_argument>([] { Vocab::from_text("ab\xC0\x80"); }),
            "vocabulary: the text is not valid UTF-8: byte 0xC0 at offset 2");
}

TEST(Vocab, FromCodePoints) {
  const Vocab vocab = Vocab::from_code_points(Ids{0, 0x61, 0xD7FF, 0xE000, 0x10FFFF});
  EXPECT_THAT(vocab.code_points(), ElementsAre(0, 0x61, 0xD7FF, 0xE000, 0x10FFFF));
  EXPECT_EQ(vocab.find(0x10FFFF), 4);
}

TEST(Vocab, FromCodePointsRefuses) {
  EXPECT_EQ(list_error({}), "vocabulary: it must have at least one symbol, got none");
  EXPECT_EQ(list_error({97, -1}), "vocabulary: -1 at position 1 is not a Unicode code point");
  EXPECT_EQ(list_error({0x110000}),
            "vocabulary: 1114112 at position 0 is not a Unicode code point");
  EXPECT_EQ(list_error({0xD800}), "vocabulary: 55296 at position 0 is not a Unicode code point");
  EXPECT_EQ(list_error({int64_t{97} + (int64_t{1} << 32)}),
            "vocabulary: 4294967393 at position 0 is not a Unicode code point");
  EXPECT_EQ(list_error({97, 98, 98}),
            "vocabulary: code points must ascend, got 98 at position 2 after 98");
  EXPECT_EQ(list_error({98, 97}),
            "vocabulary: code points must ascend, got 97 at position 1 after 98");
}

TEST(Vocab, Find) {
  const Vocab vocab = Vocab::from_text("ac日");
  EXPECT_EQ(vocab.find(U'a'), 0);
  EXPECT_EQ(vocab.find(U'b'), -1);
  EXPECT_EQ(vocab.find(U'c'), 1);
  EXPECT_EQ(vocab.find(U'日'), 2);
  EXPECT_EQ(vocab.find(U'本'), -1);  // above the largest symbol
  EXPECT_EQ(vocab.find(0x10FFFF), -1);
  EXPECT_EQ(vocab.find(0xFFFFFFFF), -1);
}

TEST(Vocab, StartsFromNewlineWhereThereIsOne) {
  EXPECT_EQ(Vocab::from_text("\t\nab").start_id(), 1);
  EXPECT_EQ(Vocab::from_text("ab").start_id(), 0);
}

TEST(Vocab, Encode) {
  const Vocab vocab = Vocab::from_text("héé—日本\n");
  EXPECT_THAT(vocab.encode("日"), ElementsAre(4));  // one symbol, not three
  EXPECT_THAT(vocab.encode("h\né日h"), ElementsAre(1, 0, 2, 4, 1));
  EXPECT_THAT(vocab.encode(""), ElementsAre());
}

TEST(Vocab, EncodeNamesUnknownCharacter) {
  const Vocab vocab = Vocab::from_text("abc日");
  EXPECT_EQ(encode_error(vocab, "a?b"),
            "encode: '?' (U+003F) at position 1 is not in the vocabulary");
  EXPECT_EQ(encode_error(vocab, "日日€"),
            "encode: '€' (U+20AC) at position 2 is not in the vocabulary");
  EXPECT_EQ(encode_error(vocab, "ab\n"),
            "encode: '\\n' (U+000A) at position 2 is not in the vocabulary");
  EXPECT_EQ(encode_error(vocab, std::string(1, '\0')),
            "encode: '\\u{00}' (U+0000) at position 0 is not in the vocabulary");
  EXPECT_EQ(encode_error(vocab,
                         "\xEF\xBB\xBF"
                         "a"),
            "encode: '\\u{FEFF}' (U+FEFF) at position 0 is not in the vocabulary");
}

TEST(Vocab, EncodeNamesWhoseTextItIs) {
  const Vocab vocab = Vocab::from_text("abc");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { vocab.encode("a?", "--prompt"); }),
            "--prompt: '?' (U+003F) at position 1 is not in the vocabulary");
}

TEST(Vocab, EncodeRefusesInvalidUtf8) {
  const Vocab vocab = Vocab::from_text("abc日");
  EXPECT_EQ(encode_error(vocab,
                         "a\x92"
                         "b"),
            "encode: the text is not valid UTF-8: byte 0x92 at offset 1");
  EXPECT_EQ(encode_error(vocab, "日\xE6\x97"),
            "encode: the text is not valid UTF-8: byte 0xE6 at offset 3");
}

TEST(Vocab, Decode) {
  const Vocab vocab = Vocab::from_text("héé—日本\n");
  EXPECT_EQ(vocab.decode(Ids{4, 5, 0}), "日本\n");
  EXPECT_EQ(vocab.decode(Ids{}), "");
  EXPECT_EQ(vocab.decode(2), "é");
}

TEST(Vocab, DecodeRefuses) {
  const Vocab vocab = Vocab::from_text("abcde");
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              vocab.decode(Ids{0, 5});
            }),
            "decode: id 5 is outside [0, 5)");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { vocab.decode(-1); }),
            "decode: id -1 is outside [0, 5)");
}

TEST(Vocab, EveryCodePointRoundTrips) {
  std::u32string all;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) {
      all += c;
    }
  }
  const std::string utf8 = model_encode(all);
  const Vocab vocab = Vocab::from_text(utf8);
  ASSERT_EQ(vocab.size(), 0x110000 - 0x800);
  Ids ascending(all.size());
  std::iota(ascending.begin(), ascending.end(), 0);
  const Ids ids = vocab.encode(utf8);
  EXPECT_TRUE(ids == ascending);  // not EXPECT_EQ: it would print megabytes
  EXPECT_TRUE(vocab.decode(ids) == utf8);
}

TEST(Vocab, RandomTextsAgainstModel) {
  std::mt19937 random(3);
  const std::vector<uint32_t> ranges = {0x80, 0x800, 0xD800, 0x110000};
  for (int round = 0; round < 60; ++round) {
    std::u32string text;
    for (std::size_t i = 1 + random() % 300; i > 0; --i) {
      const uint32_t c = random() % ranges[random() % ranges.size()];
      text += static_cast<char32_t>(c >= 0xD800 && c < 0xE000 ? c - 0x800 : c);
    }
    const std::set<char32_t> sorted(text.begin(), text.end());
    const std::vector<char32_t> symbols(sorted.begin(), sorted.end());
    Ids model;
    for (const char32_t c : text) {
      model.push_back(std::find(symbols.begin(), symbols.end(), c) - symbols.begin());
    }
    const std::string utf8 = model_encode(text);
    const Vocab vocab = Vocab::from_text(utf8);
    ASSERT_EQ(vocab.code_points(), symbols);
    ASSERT_EQ(vocab.encode(utf8), model);
    ASSERT_EQ(vocab.decode(model), utf8);
    ASSERT_EQ(vocab, Vocab::from_code_points(Ids(symbols.begin(), symbols.end())));
  }
}

}  // namespace
}  // namespace chargrad::data
