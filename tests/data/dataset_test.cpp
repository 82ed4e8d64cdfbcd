#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/data/utf8_model.h"
#include "tests/error_text.h"
#include "tests/temp_folder.h"

namespace chargrad::data {
namespace {

using testing::ElementsAre;
using Ids = std::vector<int64_t>;

Dataset load_text(const std::string& utf8, int64_t block_bytes = TextFile::kBlockBytes) {
  const TempFolder folder;
  return Dataset::load(folder.write("text.txt", utf8), {}, block_bytes);
}

Ids window(const Dataset& data, Split split, int64_t offset, int64_t length) {
  Ids out(static_cast<std::size_t>(length), -1);
  data.window(split, offset, length, out.data());
  return out;
}

std::string window_text(const Dataset& data, Split split, int64_t offset, int64_t length) {
  return data.vocab().decode(window(data, split, offset, length));
}

std::string all_text(const Dataset& data) {
  return window_text(data, Split::kTrain, 0, data.size(Split::kTrain)) +
         window_text(data, Split::kVal, 0, data.size(Split::kVal));
}

// `size` characters, all different, from `first` on.
std::u32string distinct(int size, char32_t first) {
  std::u32string text;
  for (int i = 0; i < size; ++i) {
    text += first + static_cast<char32_t>(i);
  }
  return text;
}

std::string load_error(const std::string& path) {
  return error_text<std::runtime_error>([&] { Dataset::load(path); });
}

std::string fit_error(const Dataset& data, int64_t block_size) {
  return error_text<std::invalid_argument>([&] { data.check_fits(block_size); });
}

TEST(Dataset, ShorterThanWindow) {
  const TempFolder folder;
  const std::string path = folder.write("abc.txt", "abc");
  const Dataset data = Dataset::load(path);
  EXPECT_EQ(fit_error(data, 8), path +
                                    " is too short: its training split has 2 of 3 characters, "
                                    "block_size 8 needs at least 9 in each split");
  EXPECT_EQ(data.window_count(Split::kTrain, 8), 0);
  EXPECT_EQ(data.window_count(Split::kVal, 8), 0);
}

TEST(Dataset, OnlyValidationTooShort) {
  const TempFolder folder;
  const std::string path = folder.write("t.txt", model_encode(distinct(80, U'!')));
  const Dataset data = Dataset::load(path);
  EXPECT_EQ(data.size(Split::kTrain), 72);
  EXPECT_EQ(data.size(Split::kVal), 8);
  EXPECT_EQ(fit_error(data, 8), path +
                                    " is too short: its validation split has 8 of 80 characters, "
                                    "block_size 8 needs at least 9 in each split");
  EXPECT_NO_THROW(data.check_fits(7));
}

TEST(Dataset, ExactFit) {
  const std::string text = model_encode(distinct(90, U'!'));  // ASCII: bytes are characters
  const Dataset data = load_text(text);
  EXPECT_EQ(data.size(Split::kTrain), 81);
  EXPECT_EQ(data.size(Split::kVal), 9);
  EXPECT_NO_THROW(data.check_fits(8));
  EXPECT_EQ(data.window_count(Split::kTrain, 8), 73);
  ASSERT_EQ(data.window_count(Split::kVal, 8), 1);
  EXPECT_EQ(window_text(data, Split::kVal, 0, 8), text.substr(81, 8));
  EXPECT_EQ(window_text(data, Split::kVal, 1, 8), text.substr(82, 8));  // ends with the file
}

TEST(Dataset, BlockSizeOutOfRange) {
  const TempFolder folder;
  const std::string path = folder.write("t.txt", "some text, some more text");
  const Dataset data = Dataset::load(path);
  EXPECT_EQ(fit_error(data, 0), "block_size must be at least 1, got 0");
  EXPECT_EQ(fit_error(data, -3), "block_size must be at least 1, got -3");
  EXPECT_EQ(fit_error(data, INT64_MAX),
            path +
                " is too short: its training split has 22 of 25 characters, block_size "
                "9223372036854775807 needs at least 9223372036854775808 in each split");
}

// The split is Python's int(n * 0.9), here for every small size.
TEST(Dataset, SplitOfEverySmallSize) {
  const TempFolder folder;
  for (int n = 1; n <= 61; ++n) {
    const Dataset data = Dataset::load(
        folder.write(std::to_string(n), std::string(static_cast<std::size_t>(n), 'x')));
    EXPECT_EQ(data.size(), n);
    EXPECT_EQ(data.size(Split::kTrain), static_cast<int64_t>(n * 0.9)) << n;
    EXPECT_EQ(data.size(Split::kVal), n - static_cast<int64_t>(n * 0.9)) << n;
  }
}

TEST(Dataset, SplitNames) {
  EXPECT_STREQ(split_name(Split::kTrain), "training");
  EXPECT_STREQ(split_name(Split::kVal), "validation");
}

TEST(Dataset, Empty) {
  const TempFolder folder;
  const std::string path = folder.write("empty.txt", "");
  EXPECT_EQ(load_error(path), path + " is empty");
  const std::string mark = folder.write("mark.txt", "\xEF\xBB\xBF");
  EXPECT_EQ(load_error(mark), mark + " is empty but for a byte-order mark");
}

TEST(Dataset, UnreadableFiles) {
  const TempFolder folder;
  EXPECT_EQ(load_error("nope.txt"), "cannot open nope.txt: No such file or directory");
  EXPECT_EQ(load_error(folder.path()), "cannot read " + folder.path() + ": Is a directory");
  EXPECT_EQ(load_error("/dev/zero"), "cannot read /dev/zero: Not a regular file");
  const std::string path = folder.write("latin.txt",
                                        "A\x92"
                                        "BA\x92"
                                        "B");
  EXPECT_EQ(load_error(path), path + " is not valid UTF-8: byte 0x92 at offset 1");
}

TEST(Dataset, CodePointsNotBytes) {
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text += "héé—日本\n";
  }
  for (const int64_t block : {1, 2, 3, 5, 7, 64, 4096}) {
    const Dataset data = load_text(text, block);
    EXPECT_THAT(data.vocab().code_points(), ElementsAre(U'\n', U'h', U'é', U'—', U'日', U'本'));
    EXPECT_EQ(data.size(), 3500);
    EXPECT_EQ(data.file_bytes(), 7500);
    EXPECT_EQ(data.bytes_per_id(), 1);
    EXPECT_EQ(all_text(data), text);
  }
}

TEST(Dataset, ByteOrderMark) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "hello\n";
  }
  const Dataset data = load_text("\xEF\xBB\xBF" + text);
  EXPECT_THAT(data.vocab().code_points(), ElementsAre(U'\n', U'e', U'h', U'l', U'o'));
  EXPECT_EQ(data.size(), 1200);
  EXPECT_EQ(data.file_bytes(), 1203);
  EXPECT_EQ(all_text(data), text);
}

TEST(Dataset, CarriageReturns) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "ab\r\ncd\r\n";
  }
  const Dataset both = load_text(text);
  EXPECT_EQ(both.vocab(), Vocab::from_text("\n\rabcd"));
  EXPECT_EQ(all_text(both), text);
  text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
  const Dataset alone = load_text(text);
  EXPECT_EQ(alone.vocab(), Vocab::from_text("\rabcd"));
  EXPECT_EQ(all_text(alone), text);
}

TEST(Dataset, ByteSinkGetsWholeFileOnce) {
  const TempFolder folder;
  const std::string bytes =
      "\xEF\xBB\xBF"
      "héé—日本\n";
  const std::string path = folder.write("t.txt", bytes);
  for (const int64_t block : {1, 3, 64}) {
    std::string seen;
    Dataset::load(
        path, [&seen](std::string_view piece) { seen += piece; }, block);
    EXPECT_EQ(seen, bytes);
  }
}

// One symbol fewer and one more than an id of 1 and of 2 bytes can tell apart.
TEST(Dataset, BytesPerId) {
  struct Case {
    int symbols;
    int64_t bytes_per_id;
  };
  const char32_t kAstral = 0x10000;
  for (const Case& c : {Case{1, 1}, Case{256, 1}, Case{257, 2}, Case{65536, 2}, Case{65537, 4}}) {
    const std::u32string symbols = distinct(c.symbols, kAstral);
    std::u32string text = symbols;
    text.insert(text.end(), symbols.rbegin(), symbols.rend());
    const Dataset data = load_text(model_encode(text));
    EXPECT_EQ(data.bytes_per_id(), c.bytes_per_id) << c.symbols;
    ASSERT_EQ(data.vocab().size(), c.symbols);
    ASSERT_EQ(data.size(), 2 * c.symbols);
    EXPECT_TRUE(all_text(data) == model_encode(text)) << c.symbols;
    const Ids last = window(data, Split::kVal, data.size(Split::kVal) - 1, 1);
    EXPECT_THAT(last, ElementsAre(0)) << c.symbols;
    const Ids largest = window(data, Split::kTrain, c.symbols - 1, 1);
    EXPECT_THAT(largest, ElementsAre(c.symbols - 1)) << c.symbols;
  }
}

TEST(Dataset, WindowBorders) {
  const Dataset data = load_text("abcdefghijklmnopqrst");  // 18 and 2
  EXPECT_EQ(window_text(data, Split::kTrain, 0, 18), "abcdefghijklmnopqr");
  EXPECT_EQ(window_text(data, Split::kTrain, 17, 1), "r");
  EXPECT_EQ(window_text(data, Split::kVal, 0, 2), "st");
  EXPECT_EQ(window_text(data, Split::kVal, 1, 1), "t");
  EXPECT_EQ(window_text(data, Split::kVal, 2, 0), "");
}

TEST(Dataset, WindowOutOfRange) {
  const Dataset data = load_text("abcdefghijklmnopqrst");
  const auto error = [&data](Split split, int64_t offset, int64_t length) {
    return error_text<std::invalid_argument>([&] {
      int64_t untouched = 0;
      data.window(split, offset, length, &untouched);
    });
  };
  EXPECT_EQ(error(Split::kTrain, 17, 2),
            "window: offset 17 and length 2 do not lie in the training split of 18 characters");
  EXPECT_EQ(error(Split::kVal, 0, 3),
            "window: offset 0 and length 3 do not lie in the validation split of 2 characters");
  EXPECT_EQ(error(Split::kVal, -1, 1),
            "window: offset -1 and length 1 do not lie in the validation split of 2 characters");
  EXPECT_EQ(error(Split::kVal, 1, -1),
            "window: offset 1 and length -1 do not lie in the validation split of 2 characters");
  EXPECT_EQ(error(Split::kVal, INT64_MAX, 1),
            "window: offset 9223372036854775807 and length 1 do not lie in the validation split "
            "of 2 characters");
  EXPECT_EQ(error(Split::kVal, 1, INT64_MAX),
            "window: offset 1 and length 9223372036854775807 do not lie in the validation split "
            "of 2 characters");
}

// A change that leaves length and time as they were shows in the characters only.
TEST(Dataset, ChangeBetweenTheReads) {
  const TempFolder folder;
  const std::string path = folder.path("t.txt");
  const std::string before = "abé" + std::string(200, 'x');
  const std::vector<std::string> changes = {
      "abé" + std::string(199, 'x') + "y",  // a symbol that was not there
      "abab" + std::string(200, 'x'),       // one character more
      "éé" + std::string(200, 'x'),         // one character fewer
      "abé" + std::string(201, 'x'),        // one byte more
      "abé" + std::string(100, 'x'),        // fewer bytes
  };
  for (const std::string& after : changes) {
    folder.write("t.txt", before);
    const auto time = std::filesystem::last_write_time(path);
    const auto change = [&](std::string_view) {
      folder.write("t.txt", after);
      std::filesystem::last_write_time(path, time);
    };
    EXPECT_EQ(error_text<std::runtime_error>([&] { Dataset::load(path, change); }),
              path + " changed while it was being read");
  }
}

TEST(Dataset, RandomTextsAgainstModel) {
  const TempFolder folder;
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    const std::u32string alphabet =
        distinct(1 + static_cast<int>(random() % 400), round % 2 == 0 ? U'a' : U'\u0700');
    std::u32string text;
    for (std::size_t i = 1 + random() % 600; i > 0; --i) {
      text += alphabet[random() % alphabet.size()];
    }
    const Dataset data = Dataset::load(folder.write(std::to_string(round), model_encode(text)), {},
                                       1 + static_cast<int64_t>(random() % 90));
    const std::set<char32_t> sorted(text.begin(), text.end());
    const std::vector<char32_t> symbols(sorted.begin(), sorted.end());
    ASSERT_EQ(data.vocab().code_points(), symbols);
    ASSERT_EQ(data.size(), static_cast<int64_t>(text.size()));
    ASSERT_EQ(data.bytes_per_id(), symbols.size() > 256 ? 2 : 1);
    const std::size_t train = text.size() * 9 / 10;
    for (const Split split : {Split::kTrain, Split::kVal}) {
      const std::u32string part =
          split == Split::kTrain ? text.substr(0, train) : text.substr(train);
      ASSERT_EQ(data.size(split), static_cast<int64_t>(part.size()));
      const std::size_t offset = random() % (part.size() + 1);
      const std::size_t length = random() % (part.size() - offset + 1);
      ASSERT_EQ(
          window_text(data, split, static_cast<int64_t>(offset), static_cast<int64_t>(length)),
          model_encode(part.substr(offset, length)));
    }
  }
}

TEST(Dataset, TinyShakespeare) {
  const char* shared = std::getenv("CHARGRAD_SHARED");
  if (shared == nullptr) {
    GTEST_SKIP() << "needs CHARGRAD_SHARED";
  }
  const std::string path = std::string(shared) + "/data/tinyshakespeare.txt";
  const Dataset data = Dataset::load(path);
  EXPECT_EQ(data.file_bytes(), 1115394);
  EXPECT_EQ(data.size(), 1115394);
  EXPECT_EQ(data.vocab().size(), 65);
  EXPECT_EQ(data.size(Split::kTrain), 1003854);
  EXPECT_EQ(data.size(Split::kVal), 111540);
  EXPECT_EQ(window_text(data, Split::kTrain, 0, 14), "First Citizen:");
  EXPECT_TRUE(all_text(data) == read_text(path));
}

}  // namespace
}  // namespace chargrad::data
