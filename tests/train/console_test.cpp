#include "train/console.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace chargrad::train {
namespace {

TEST(Console, Lines) {
  EXPECT_EQ(eval_line(250, 2.42934, 2.44469), "step 250: train loss 2.4293, val loss 2.4447");
  EXPECT_EQ(iter_line(10, 2.42934, 40.1234, 19141.6),
            "iter 10: loss 2.4293, time 40.12ms, 19142 tok/s");
}

TEST(Console, ShellWordsReadBack) {
  EXPECT_EQ(shell_word("out/my-run_2.0"), "out/my-run_2.0");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("z\xc3\xbcge"), "'z\xc3\xbcge'");
}

TEST(Console, NumbersAreShortWhereTheyCanBe) {
  EXPECT_EQ(json_number(0.0), "0");
  EXPECT_EQ(json_number(4.25), "4.25");
  EXPECT_EQ(json_number(static_cast<double>(4.16764688f)), "4.16764688");
  EXPECT_EQ(json_number(1e-3), "0.001");
  EXPECT_EQ(json_number(1e300), "1e+300");
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(Console, EveryFloatReadsBackExactly) {
  std::mt19937 bits(1337);
  for (int i = 0; i < 100000; ++i) {
    const uint32_t word = static_cast<uint32_t>(bits());
    float value = 0;
    std::memcpy(&value, &word, sizeof value);
    if (std::isfinite(value)) {
      const double read = nlohmann::json::parse(json_number(value)).get<double>();
      ASSERT_EQ(static_cast<float>(read), value) << json_number(value);
    }
  }
}

TEST(Console, EveryDoubleReadsBackExactly) {
  std::mt19937_64 bits(1337);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t word = bits();
    double value = 0;
    std::memcpy(&value, &word, sizeof value);
    if (std::isfinite(value)) {
      ASSERT_EQ(nlohmann::json::parse(json_number(value)).get<double>(), value);
    }
  }
}

}  // namespace
}  // namespace chargrad::train
