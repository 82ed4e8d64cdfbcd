#include "train/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "tests/temp_folder.h"
#include "train/files.h"

namespace chargrad::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text, Comments comments = Comments::kRefused) {
  return error_of([&] { parse_json(text, "a.json", comments); });
}

TEST(JsonFile, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json(R"({"b":1,"a":{"z":[true,null],"y":0.1}})", "a.json").dump(),
            R"({"b":1,"a":{"z":[true,null],"y":0.1}})");
}

TEST(JsonFile, CommentsOnlyWhereTheyAreAllowed) {
  const std::string text = "// one\n{\"a\": 1 /* two */}";
  EXPECT_EQ(parse_json(text, "a.json", Comments::kAllowed).dump(), R"({"a":1})");
  EXPECT_THAT(parse_error(text), StartsWith("a.json: parse error at line 1, column 1: "));
}

TEST(JsonFile, RefusesBrokenTexts) {
  EXPECT_THAT(parse_error(""), StartsWith("a.json: parse error at line 1, column 1: "));
  EXPECT_THAT(parse_error("{\"a\":\n1,}"), StartsWith("a.json: parse error at line 2, column 3: "));
  EXPECT_THAT(parse_error("{} x"), StartsWith("a.json: parse error at line 1, column 4: "));
  EXPECT_THAT(parse_error("{\"a\":nan}"), StartsWith("a.json: parse error at line 1, column 7: "));
  const std::string not_utf8 = parse_error("\"\xff\"");
  EXPECT_THAT(not_utf8, StartsWith("a.json: parse error at line 1, column 2: "));
  EXPECT_THAT(not_utf8, HasSubstr("last read: '\"\\xff'"));
  EXPECT_THAT(parse_error("{\"a\":1e999}"), StartsWith("a.json: number overflow"));
  EXPECT_EQ(parse_error("{\"a\":1,\"b\":{\"a\":1},\"a\":2}"), "a.json: key \"a\" is given twice");
  EXPECT_EQ(parse_error("[{\"a\":1},{\"a\":2}]"), "no error");
  // The message stays short whatever the text holds.
  EXPECT_LT(parse_error(std::string(1 << 20, 'x')).size(), 300U);
}

TEST(JsonFile, RefusesNulBytes) {
  for (const std::string& text :
       {std::string("{}\0", 3), std::string("{}\0garbage", 10), std::string("{\"a\0b\": 1}", 10)}) {
    EXPECT_EQ(parse_error(text, Comments::kAllowed),
              fmt::format("a.json: byte {} is NUL, which no JSON holds", text.find('\0')));
  }
}

TEST(JsonFile, RefusesDeepNesting) {
  EXPECT_EQ(parse_error(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(parse_error(std::string(100000, '[')), "a.json: JSON nested deeper than 64");
  std::string objects;
  for (int i = 0; i < 100; ++i) {
    objects += "{\"a\":";
  }
  EXPECT_EQ(parse_error(objects), "a.json: JSON nested deeper than 64");
}

TEST(JsonFile, RefusesMoreValuesThanThereAreCharacters) {
  std::string text = "[[";
  for (int i = 0; i < 1'114'112; ++i) {
    text += "1,";
  }
  EXPECT_EQ(parse_error(text + "1]]"), "no error");
  for (int i = 0; i < 100'000; ++i) {
    text += "1,";
  }
  EXPECT_EQ(parse_error(text + "1]]"), "a.json: more than 1200000 JSON values");
}

// What takes the square of its length would take minutes here.
TEST(JsonFile, TimeGrowsWithTheLength) {
  std::string keys = "{\"k\":1", objects = "[{}";
  for (int i = 1; i < 100'000; ++i) {
    keys += fmt::format(",\"{}\":1", i);
    objects += ",{}";
  }
  EXPECT_EQ(parse_error(keys + "}"), "no error");
  EXPECT_EQ(parse_error(keys + ",\"more\":1}"), "a.json: more than 100000 keys in one object");
  EXPECT_EQ(parse_json(objects + "]", "a.json").size(), 100'000U);
}

TEST(JsonFile, ReadsFiles) {
  const TempFolder dir;
  const std::string path = dir.write("s.json", "{\"a\": 1}\n");
  EXPECT_EQ(read_json_file(path).dump(), R"({"a":1})");
  EXPECT_EQ(read_whole_file(path, 9), "{\"a\": 1}\n");
  EXPECT_EQ(error_of([&] { read_whole_file(path, 8); }), path + " is longer than 8 bytes");
  EXPECT_EQ(error_of([&] { read_json_file(dir.path("no")); }),
            "cannot open " + dir.path("no") + ": No such file or directory");
  EXPECT_EQ(error_of([&] { read_json_file(dir.path("")); }),
            "cannot read " + dir.path("") + ": Is a directory");
  EXPECT_EQ(error_of([&] { read_json_file("/dev/zero"); }),
            "cannot read /dev/zero: not a regular file");
  EXPECT_EQ(error_of([&] { read_json_file("/dev/zero", Comments::kAllowed); }),
            "/dev/zero is longer than 16777216 bytes");
  EXPECT_THAT(error_of([&] { read_json_file(dir.write("b.json", "{")); }),
              StartsWith(dir.path("b.json") + ": parse error at line 1, column 2: "));
}

TEST(JsonFile, ReadsPipesWhereAPersonWrites) {
  const TempFolder dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_json_file(dir.path("pipe")); }),
            "cannot read " + dir.path("pipe") + ": not a regular file");
  std::thread writer([&] { dir.write("pipe", "{\"a\": 1}"); });
  EXPECT_EQ(read_json_file(dir.path("pipe"), Comments::kAllowed).dump(), R"({"a":1})");
  writer.join();
}

TEST(Members, TellWhatIsWrong) {
  const Members m(parse_json(R"({"t":"x","b":true,"r":0.5,"w":3,"n":-3,"h":18446744073709551615,)"
                             R"("a":[1,2],"bad":[1,2.5],"o":{"w":1},"null":null})",
                             "a.json"),
                  "a.json");
  EXPECT_EQ(m.text("t"), "x");
  EXPECT_TRUE(m.boolean("b"));
  EXPECT_EQ(m.real("r", 0, 1), 0.5);
  EXPECT_EQ(m.real("w", 0, 9), 3.0);
  EXPECT_EQ(m.whole("w", 3, 3), 3);
  EXPECT_EQ(m.whole("n", -3, 0), -3);
  EXPECT_EQ(m.wholes("a", 0, 2), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(m.object("o").whole("w", 0, 1), 1);
  EXPECT_TRUE(m.has("null"));
  EXPECT_FALSE(m.has("none"));
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[&] { m.at("none"); }, "none is missing"},
      {[&] { m.text("w"); }, "w must be a text, got 3"},
      {[&] { m.boolean("w"); }, "w must be true or false, got 3"},
      {[&] { m.array("w"); }, "w must be an array, got 3"},
      {[&] { m.object("w"); }, "w must be an object, got 3"},
      {[&] {
         m.choice("t", {"y", "z"});
       },
       "t must be one of y, z, got \"x\""},
      {[&] { m.real("t", 0, 1); }, "t must be a number in [0, 1], got \"x\""},
      {[&] { m.real("w", 0, 1); }, "w must be a number in [0, 1], got 3"},
      {[&] { m.whole("r", 0, 9); }, "r must be a whole number in [0, 9], got 0.5"},
      {[&] { m.whole("n", 0, 9); }, "n must be a whole number in [0, 9], got -3"},
      {[&] { m.whole("w", 4, 9); }, "w must be a whole number in [4, 9], got 3"},
      {[&] { m.whole("h", 0, INT64_MAX); },
       "h must be a whole number in [0, 2^63), got 18446744073709551615"},
      {[&] { m.wholes("bad", 0, 9); }, "bad must be a whole number in [0, 9], got 2.5"},
      {[&] { m.check_version(1); }, "version is missing"},
      {[] { Members(parse_json("[1]", "a.json"), "a.json"); },
       "a JSON object is expected, got [1]"},
      {[] { Members(parse_json("{\"version\":2}", "a.json"), "a.json").check_version(1); },
       "version 2 is not supported; this program reads version 1"},
  };
  for (const auto& [function, message] : cases) {
    EXPECT_EQ(error_of(function), "a.json: " + message);
  }
}

}  // namespace
}  // namespace chargrad::train
