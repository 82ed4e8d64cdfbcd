#include "train/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "tests/temp_folder.h"

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
  EXPECT_THAT(parse_error("\"\xff\""), StartsWith("a.json: parse error at line 1, column 2: "));
  EXPECT_THAT(parse_error("{\"a\":1e999}"), StartsWith("a.json: number overflow"));
  EXPECT_EQ(parse_error("{\"a\":1,\"b\":{\"a\":1},\"a\":2}"), "a.json: key a stands there twice");
  EXPECT_EQ(parse_error("[{\"a\":1},{\"a\":2}]"), "no error");
  // The message stays short whatever the text holds.
  EXPECT_LT(parse_error(std::string(1 << 20, 'x')).size(), 300U);
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
            "/dev/zero is longer than 16777216 bytes");
  EXPECT_THAT(error_of([&] { read_json_file(dir.write("b.json", "{")); }),
              StartsWith(dir.path("b.json") + ": parse error at line 1, column 2: "));
}

TEST(JsonFile, ReadsPipes) {
  const TempFolder dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  std::thread writer([&] { dir.write("pipe", "{\"a\": 1}"); });
  EXPECT_EQ(read_json_file(dir.path("pipe")).dump(), R"({"a":1})");
  writer.join();
}

}  // namespace
}  // namespace chargrad::train
