#include "data/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/data/utf8_model.h"
#include "tests/error_text.h"
#include "tests/temp_folder.h"

namespace chargrad::data {
namespace {

using namespace std::string_literals;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// What a read in blocks of this size gives.
struct Contents {
  std::u32string text;
  std::string bytes;
  int64_t length = 0;
};

Contents read_all(const std::string& path, int64_t block_bytes) {
  Contents contents;
  contents.length = TextFile(path, block_bytes)
                        .read(
                            [&contents](std::span<const char32_t> block) {
                              EXPECT_FALSE(block.empty());
                              contents.text.append(block.begin(), block.end());
                            },
                            [&contents](std::string_view block) { contents.bytes += block; });
  return contents;
}

std::string open_error(const std::string& path) {
  return error_text<std::runtime_error>([&path] { TextFile file(path); });
}

std::string read_error(const std::string& path, int64_t block_bytes = TextFile::kBlockBytes) {
  return error_text<std::runtime_error>([&path, block_bytes] { read_all(path, block_bytes); });
}

TEST(TextFile, MissingPath) {
  EXPECT_EQ(open_error("nope.txt"), "cannot open nope.txt: No such file or directory");
  EXPECT_EQ(open_error(""), "cannot open : No such file or directory");
  const TempFolder folder;
  const std::string file = folder.write("a.txt", "abc");
  EXPECT_EQ(open_error(file + "/b.txt"), "cannot open " + file + "/b.txt: Not a directory");
}

TEST(TextFile, ControlCharactersOfPathAreEscaped) {
  EXPECT_EQ(open_error("no\npe\x1B.txt"),
            "cannot open no\\x0ape\\x1b.txt: No such file or directory");
}

TEST(TextFile, Directory) {
  const TempFolder folder;
  EXPECT_EQ(open_error(folder.path()), "cannot read " + folder.path() + ": Is a directory");
}

TEST(TextFile, NotRegular) {
  const TempFolder folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(open_error(pipe), "cannot read " + pipe + ": Not a regular file");
  EXPECT_EQ(open_error("/dev/zero"), "cannot read /dev/zero: Not a regular file");
  EXPECT_EQ(open_error("/dev/null"), "cannot read /dev/null: Not a regular file");
}

TEST(TextFile, NoPermission) {
  const TempFolder folder;
  const std::string path = folder.write("secret.txt", "abc");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const uid_t user = ::geteuid();
  const uid_t kNobody = 65534;
  if (user == 0 && ::seteuid(kNobody) != 0) {
    GTEST_SKIP() << "root may read everything here";
  }
  const std::string error = open_error(path);
  if (user == 0) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(error, "cannot open " + path + ": Permission denied");
}

TEST(TextFile, SystemErrorWhileReading) {
  // The memory of a process has no page at address 0.
  const std::string path = "/proc/self/mem";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "needs " << path;
  }
  EXPECT_EQ(read_error(path), "cannot read /proc/self/mem: Input/output error");
}

TEST(TextFile, Empty) {
  const TempFolder folder;
  const Contents contents = read_all(folder.write("empty.txt", ""), 16);
  EXPECT_EQ(contents.text, U"");
  EXPECT_EQ(contents.bytes, "");
  EXPECT_EQ(contents.length, 0);
}

TEST(TextFile, InvalidUtf8NamesOffset) {
  const TempFolder folder;
  const std::string path = folder.write("latin.txt", repeated("A\x92"s + "B", 500));
  for (const int64_t block : {1, 2, 3, 4, 5, 64, 4096}) {
    EXPECT_EQ(read_error(path, block), path + " is not valid UTF-8: byte 0x92 at offset 1");
  }
  const std::string late = folder.write("late.txt", repeated("日本\n", 10000) + "\xED\xA0\x80zz");
  for (const int64_t block : {1, 7, 4096, 1 << 20}) {
    EXPECT_EQ(read_error(late, block), late + " is not valid UTF-8: byte 0xED at offset 70000");
  }
}

TEST(TextFile, CutAtEndOfFile) {
  const TempFolder folder;
  const std::string whole = "ab😀";
  for (std::size_t length = 3; length < whole.size(); ++length) {
    const std::string path = folder.write("cut.txt", whole.substr(0, length));
    for (const int64_t block : {1, 2, 3, 4, 5, 64}) {
      EXPECT_EQ(read_error(path, block), path + " is not valid UTF-8: byte 0xF0 at offset 2");
    }
  }
}

TEST(TextFile, ByteOrderMarkIsDropped) {
  const TempFolder folder;
  const std::string bytes = "\xEF\xBB\xBF" + repeated("hello\n", 200);
  const std::string path = folder.write("bom.txt", bytes);
  for (const int64_t block : {1, 2, 3, 4, 64, 4096}) {
    const Contents contents = read_all(path, block);
    EXPECT_EQ(model_encode(contents.text), bytes.substr(3));
    EXPECT_EQ(contents.bytes, bytes);
    EXPECT_EQ(contents.length, 1203);
  }
}

TEST(TextFile, ByteOrderMarkElsewhereIsKept) {
  const TempFolder folder;
  const std::string path = folder.write("bom.txt",
                                        "\xEF\xBB\xBF\xEF\xBB\xBF"
                                        "a\xEF\xBB\xBF");
  for (const int64_t block : {1, 3, 64}) {
    EXPECT_EQ(read_all(path, block).text, U"\uFEFFa\uFEFF");
  }
}

TEST(TextFile, EveryByteOfLineEndsAndControlsIsKept) {
  const TempFolder folder;
  for (const std::string& text :
       {repeated("ab\r\ncd\r\n", 200), repeated("ab\rcd\r", 200), "\0\x1A\f\v\x7F \t\n\r"s}) {
    const Contents contents = read_all(folder.write("ends.txt", text), 64);
    EXPECT_EQ(contents.text, std::u32string(text.begin(), text.end()));
  }
}

// Characters of each length fall on each side of each border of a block.
TEST(TextFile, RandomTextsInBlocksOfEverySize) {
  const TempFolder folder;
  const std::u32string alphabet = U"a\nz\0é\u07FF\u0800日—\uFFFF\U00010000😀\U0010FFFF"s;
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::u32string text;
    for (std::size_t i = random() % 200; i > 0; --i) {
      text += alphabet[random() % alphabet.size()];
    }
    const std::string utf8 = model_encode(text);
    const std::string path = folder.write(std::to_string(round), utf8);
    const int64_t block = 1 + round % 40;
    const Contents contents = read_all(path, block);
    ASSERT_EQ(contents.text, text) << block;
    ASSERT_EQ(contents.bytes, utf8) << block;
    ASSERT_EQ(contents.length, static_cast<int64_t>(utf8.size())) << block;
  }
}

TEST(TextFile, MayBeReadTwice) {
  const TempFolder folder;
  TextFile file(folder.write("twice.txt", "héé—日本\n"), 2);
  for (int i = 0; i < 2; ++i) {
    std::u32string text;
    EXPECT_EQ(file.read([&text](auto block) { text.append(block.begin(), block.end()); }), 15);
    EXPECT_EQ(text, U"héé—日本\n");
  }
}

TEST(TextFile, ChangeWhileReading) {
  const TempFolder folder;
  const std::string path = folder.path("log.txt");
  const std::string text = repeated("some text\n", 100);
  const auto grow = [&path] { std::ofstream(path, std::ios::app) << "more"; };
  const auto cut = [&path] { std::filesystem::resize_file(path, 10); };
  const auto touch = [&path] {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
  };
  for (const std::function<void()>& change : std::vector<std::function<void()>>{grow, cut, touch}) {
    folder.write("log.txt", text);
    std::filesystem::last_write_time(path, std::filesystem::file_time_type{});
    TextFile file(path, 64);
    EXPECT_EQ(error_text<std::runtime_error>([&] { file.read([&](auto) { change(); }); }),
              path + " changed while it was being read");
  }
}

TEST(TextFile, RemovalAndReplacementWhileReading) {
  const TempFolder folder;
  const std::string path = folder.write("old.txt", "abcdef");
  TextFile replaced(path, 2);
  const auto replace = [&](auto) {
    std::filesystem::rename(folder.write("new.txt", "another"), path);
  };
  EXPECT_EQ(error_text<std::runtime_error>([&] { replaced.read(replace); }),
            path + " changed while it was being read");
  TextFile removed(path, 2);
  EXPECT_EQ(error_text<std::runtime_error>(
                [&] { removed.read([&](auto) { std::filesystem::remove(path); }); }),
            "cannot read " + path + ": No such file or directory");
}

TEST(TextFile, ReadText) {
  const TempFolder folder;
  EXPECT_EQ(read_text(folder.write("a.txt",
                                   "\xEF\xBB\xBF"
                                   "h\r\né日😀")),
            "h\r\né日😀");
  EXPECT_EQ(read_text(folder.write("b.txt", "")), "");
  EXPECT_EQ(error_text<std::runtime_error>([] { read_text("nope.txt"); }),
            "cannot open nope.txt: No such file or directory");
}

}  // namespace
}  // namespace chargrad::data
