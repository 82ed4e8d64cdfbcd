#include "train/setting.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "train/settings.h"

namespace chargrad::train {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Values {
  bool flag = false;
  int64_t count = 7;
  double rate = 0.5;
  std::string kind = "a";
  std::string name = "old";
  std::optional<std::string> extra;
};

struct List {
  Values values;
  SettingList list;

  List() {
    list.group("All");
    list.boolean("flag", values.flag, "");
    list.whole("count", values.count, {1, 8}, "", "");
    list.real("rate", values.rate, {0.0, 1.0, /*includes_high=*/false}, "", "");
    list.choice("kind", values.kind, {"a", "b"}, "");
    list.text("name", values.name, "NAME", "");
    list.optional_text("extra", values.extra, "FILE", "");
  }
  std::string assign(const std::string& name, const std::string& text) const {
    return list.find(name)->assign_text(text);
  }
  std::string assign_json(const std::string& name, const Json& value) const {
    return list.find(name)->assign_json(value);
  }
};

struct Case {
  std::string name, text, error;
};

TEST(Setting, RefusesTextsThatAreNotWholeValues) {
  const std::string whole = "is not a whole number in [1, 8]";
  const std::string real = "is not a number in [0, 1)";
  const std::string boolean = "is not true, false, 1 or 0";
  const std::vector<Case> cases = {
      {"count", "2.5", whole},
      {"count", "-1", whole},
      {"count", "0", whole},
      {"count", "9", whole},
      {"count", "", whole},
      {"count", " 3", whole},
      {"count", "3 ", whole},
      {"count", "+3", whole},
      {"count", "3x", whole},
      {"count", "0x3", whole},
      {"count", "1e0", whole},
      {"count", "99999999999999999999", whole},
      {"rate", "1", real},
      {"rate", "-0.1", real},
      {"rate", "nan", real},
      {"rate", "inf", real},
      {"rate", "-inf", real},
      {"rate", "1e-3abc", real},
      {"rate", "", real},
      {"rate", "0.5,", real},
      {"rate", "1e400", real},
      {"rate", "0x1p-1", real},
      {"flag", "maybe", boolean},
      {"flag", "", boolean},
      {"flag", "2", boolean},
      {"flag", "yes", boolean},
      {"flag", "true ", boolean},
      {"kind", "c", "is not one of a, b"},
      {"kind", "", "is not one of a, b"},
      {"name", "", "is empty"},
      {"name", "\xff", "is not UTF-8"},
      {"extra", "a\xc3", "is not UTF-8"},
  };
  for (const Case& c : cases) {
    List t;
    EXPECT_EQ(t.assign(c.name, c.text), c.error) << c.name << "=" << c.text;
    EXPECT_EQ(to_json(t.list), to_json(List().list)) << c.name << "=" << c.text;
  }
}

TEST(Setting, TakesTexts) {
  const std::vector<std::pair<std::string, bool>> booleans = {
      {"true", true},   {"True", true},   {"TRUE", true},   {"1", true},
      {"false", false}, {"False", false}, {"fAlSe", false}, {"0", false}};
  for (const auto& [text, value] : booleans) {
    List t;
    t.values.flag = !value;
    EXPECT_EQ(t.assign("flag", text), "");
    EXPECT_EQ(t.values.flag, value) << text;
  }
  List t;
  EXPECT_EQ(t.assign("count", "8"), "");
  EXPECT_EQ(t.values.count, 8);
  EXPECT_EQ(t.assign("rate", "1e-3"), "");
  EXPECT_EQ(t.values.rate, 1e-3);
  EXPECT_EQ(t.assign("rate", "-0.0"), "");
  EXPECT_FALSE(std::signbit(t.values.rate));
  EXPECT_EQ(t.assign("kind", "b"), "");
  EXPECT_EQ(t.values.kind, "b");
  EXPECT_EQ(t.assign("name", "h\xc3\xa9"), "");
  EXPECT_EQ(t.values.name, "h\xc3\xa9");
  EXPECT_EQ(t.assign("extra", ""), "");
  EXPECT_EQ(t.values.extra, "");
}

TEST(Setting, RangesNameTheirEnds) {
  double x = 0;
  SettingList list;
  list.real("closed", x, {0.0, 1.0}, "", "");
  list.real("unbounded", x, {0.0, kInf}, "", "");
  EXPECT_EQ(list.find("closed")->assign_text("1"), "");
  EXPECT_EQ(list.find("closed")->assign_text("1.5"), "is not a number in [0, 1]");
  EXPECT_EQ(list.find("unbounded")->assign_text("1e300"), "");
  EXPECT_EQ(list.find("unbounded")->assign_text("inf"), "is not a number in [0, inf)");
}

TEST(Setting, RefusesJsonOfAnotherType) {
  const std::string whole = "is not a whole number in [1, 8]";
  const std::vector<std::tuple<std::string, Json, std::string>> cases = {
      {"count", 2.5, whole},
      {"count", 2.0, whole},
      {"count", "2", whole},
      {"count", true, whole},
      {"count", nullptr, whole},
      {"count", std::numeric_limits<uint64_t>::max(), whole},
      {"rate", "0.1", "is not a number in [0, 1)"},
      {"rate", false, "is not a number in [0, 1)"},
      {"flag", 2, "is not true, false, 1 or 0"},
      {"flag", 1.0, "is not true, false, 1 or 0"},
      {"flag", "true", "is not true, false, 1 or 0"},
      {"kind", 3, "is not a text in quotes"},
      {"kind", "c", "is not one of a, b"},
      {"name", Json::array({"x"}), "is not a text in quotes"},
      {"extra", 1, "is not a text in quotes"},
  };
  for (const auto& [name, value, error] : cases) {
    List t;
    EXPECT_EQ(t.assign_json(name, value), error) << name << "=" << value;
    EXPECT_EQ(to_json(t.list), to_json(List().list)) << name;
  }
}

TEST(Setting, BooleansOfJsonAreThoseOfTheCommandLine) {
  for (const auto& [value, expected] :
       std::vector<std::pair<Json, bool>>{{true, true}, {1, true}, {false, false}, {0, false}}) {
    List t;
    t.values.flag = !expected;
    EXPECT_EQ(t.assign_json("flag", value), "");
    EXPECT_EQ(t.values.flag, expected) << value;
  }
}

TEST(Setting, JsonReadsBackExactly) {
  List from, to;
  from.values = {true, 3, 0.1 + 0.2, "b", "a \"name\"\n", ""};
  for (const Setting& setting : from.list) {
    const Json read = Json::parse(setting.json().dump());
    EXPECT_EQ(to.list.find(setting.name)->assign_json(read), "") << setting.name;
  }
  EXPECT_TRUE(to.values.flag);
  EXPECT_EQ(to.values.count, 3);
  EXPECT_EQ(to.values.rate, 0.1 + 0.2);
  EXPECT_EQ(to.values.kind, "b");
  EXPECT_EQ(to.values.name, "a \"name\"\n");
  EXPECT_EQ(to.values.extra, "");
  EXPECT_EQ(to.list.find("extra")->assign_json(nullptr), "");
  EXPECT_EQ(to.values.extra, std::nullopt);
  EXPECT_EQ(to_json(List().list).dump(),
            R"({"flag":false,"count":7,"rate":0.5,"kind":"a","name":"old","extra":null})");
}

TEST(Setting, TextReadsBackExactly) {
  List t;
  t.values.rate = 1.0 / 3;
  const std::string text = t.list.find("rate")->text();
  t.values.rate = 0;
  EXPECT_EQ(t.assign("rate", text), "");
  EXPECT_EQ(t.values.rate, 1.0 / 3);
  EXPECT_EQ(t.list.find("flag")->text(), "false");
  EXPECT_EQ(t.list.find("count")->text(), "7");
}

TEST(Setting, NearestName) {
  int64_t n = 0;
  SettingList list;
  for (const char* name : {"n_layer", "n_head", "n_embd", "learning_rate", "batch_size", "data",
                           "max_iters", "seed"}) {
    list.whole(name, n, {0, 1}, "", "");
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"n_layers", "n_layer"},
      {"n_haed", "n_head"},
      {"lr", "learning_rate"},
      {"batchsize", "batch_size"},
      {"batch", "batch_size"},
      {"dataset", "data"},
      {"max_iter", "max_iters"},
      {"sead", "seed"},
      {"learning_rat", "learning_rate"},
      {"unknown", ""},
      {"x", ""},
      {"", ""},
      {std::string(100000, 'n'), ""},
  };
  for (const auto& [typed, meant] : cases) {
    EXPECT_EQ(list.nearest(typed), meant) << typed.substr(0, 20);
  }
}

TEST(Setting, ANameOfNanoGptLeadsToOurs) {
  SampleSettings settings;
  EXPECT_EQ(setting_list(settings).nearest("start"), "prompt");
}

TEST(Setting, MessagesWithoutTheirSource) {
  EXPECT_EQ(without_source("f: x is y", "f"), "x is y");
  EXPECT_EQ(without_source("f: x is y", "g"), "f: x is y");
  EXPECT_EQ(without_source("fg: x", "f"), "fg: x");
  EXPECT_EQ(without_source("f", "f"), "f");
}

TEST(Setting, ShownIsOneShortLine) {
  EXPECT_EQ(shown("plain"), "plain");
  EXPECT_EQ(shown("a\nb\x7f"), "a\\x0ab\\x7f");
  EXPECT_EQ(shown(std::string(1000, 'x')), std::string(60, 'x') + "...");
  // The cut falls into the second byte of a character, which goes as a whole.
  EXPECT_EQ(shown("abc\xc3\xa9"
                  "def",
                  4),
            "abc...");
  // Neither half a character nor what is none, and no control that is two bytes long.
  EXPECT_EQ(shown("a\xff\xc3z\xe6\x97\xa5\xe6\x97"), "a\\xff\\xc3z\xe6\x97\xa5\\xe6\\x97");
  EXPECT_EQ(shown("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(shown("abc\n", 5), "abc...");
  EXPECT_EQ(shown_json(Json{{"k", 1.5}}), R"({"k":1.5})");
}

}  // namespace
}  // namespace chargrad::train
