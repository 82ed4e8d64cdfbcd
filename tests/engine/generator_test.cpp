#include "engine/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "engine/kernels/random.h"
#include "tests/golden/golden.h"

namespace chargrad {
namespace {

using Bytes = std::vector<uint8_t>;

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string fnv1a(const Bytes& bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  Bytes reversed;
  for (const uint8_t byte : bytes) {
    value = (value ^ byte) * 0x100000001b3u;
  }
  for (int shift = 56; shift >= 0; shift -= 8) {
    reversed.push_back(static_cast<uint8_t>(value >> shift));
  }
  return hex(reversed);
}

std::vector<float> normals(Generator& generator, int64_t n) {
  std::vector<float> y(static_cast<size_t>(n));
  kernels::normal(generator.stream(), y.data(), n, 0, 1);
  return y;
}

void skip(Generator& generator, int64_t words) {
  for (int64_t i = 0; i < words; ++i) {
    generator.random();
  }
}

// A generator in the state of "state" in tests/golden/rng.json.
Generator used_generator() {
  Generator generator(static_cast<uint64_t>(-1));
  skip(generator, 700);
  normals(generator, 3);
  return generator;
}

TEST(Generator, StreamIsTheMersenneTwistersOfTheLow32Bits) {
  for (const uint64_t seed : {uint64_t{137}, uint64_t{1337}, (uint64_t{1} << 32) + 1337}) {
    Generator generator(seed);
    std::mt19937 standard(static_cast<uint32_t>(seed));
    for (int i = 0; i < 2000; ++i) {
      ASSERT_EQ(generator.random(), standard()) << i;
    }
  }
  Generator generator(1337);
  EXPECT_EQ(generator.random(), 1125387415u);
  EXPECT_EQ(generator.random(), 2407456957u);
  // The first of two draws is the high word.
  EXPECT_EQ(generator.random64(), uint64_t{681542492} << 32 | 913057000u);
}

TEST(Generator, ManualSeedForgetsEverything) {
  Generator generator(3);
  generator.random();
  normals(generator, 1);
  generator.next_dropout_key();
  generator.manual_seed(1337);
  EXPECT_EQ(generator.initial_seed(), 1337u);
  EXPECT_EQ(generator.dropout_calls(), 0u);
  EXPECT_EQ(generator.get_state(), Generator(1337).get_state());
  generator.manual_seed(-1);
  EXPECT_EQ(generator.initial_seed(), std::numeric_limits<uint64_t>::max());
}

TEST(Generator, StateBytesArePyTorchs) {
  const auto expected = tests::golden("rng.json").at("state");
  Generator generator = used_generator();
  const Bytes bytes = generator.get_state();
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), Generator::kStateBytes);
  EXPECT_EQ(hex(std::span(bytes).first(24)), expected.at("head").get<std::string>());
  EXPECT_EQ(hex(std::span(bytes).subspan(5016)), expected.at("tail").get<std::string>());
  EXPECT_EQ(fnv1a(bytes), expected.at("fnv1a").get<std::string>());

  Generator other(99);
  other.set_state(bytes);
  std::vector<double> next;
  for (const float value : normals(other, 2)) {
    next.push_back(value);
  }
  EXPECT_EQ(next, tests::values_of({{"hex", expected.at("next")}}));
}

TEST(Generator, FreshAndExhaustedStatesReadBack) {
  for (const int64_t drawn : {0, 1, 623, 624, 625}) {
    Generator generator(1337), other(1);
    skip(generator, drawn);
    const Bytes bytes = generator.get_state();
    other.set_state(bytes);
    EXPECT_EQ(other.get_state(), bytes) << drawn;
    EXPECT_EQ(other.initial_seed(), 1337u);
    EXPECT_EQ(other.random(), generator.random()) << drawn;
  }
}

// A flag and a number that PyTorch has but does not use on a CPU survive.
TEST(Generator, FloatNormalSurvives) {
  Bytes bytes = Generator(1).get_state();
  const float value = 0.25f;
  std::memcpy(bytes.data() + 5048, &value, sizeof(value));
  bytes[5052] = 1;
  Generator generator(2);
  generator.set_state(bytes);
  EXPECT_EQ(generator.get_state(), bytes);
}

TEST(Generator, CopiesGoTheirOwnWays) {
  Generator generator = used_generator();
  const Bytes before = generator.get_state();
  Generator copy = generator;
  const std::vector<float> values = normals(copy, 5);
  EXPECT_EQ(generator.get_state(), before);
  EXPECT_EQ(normals(generator, 5), values);
}

template <class T>
void put(Bytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

TEST(Generator, BadStatesAreRefusedAndChangeNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    std::function<void(Bytes&)> spoil;
    std::string message;
  } cases[] = {
      {[](Bytes& b) { b.pop_back(); }, "generator: a state must have 5056 bytes, got 5055"},
      {[](Bytes& b) { b.clear(); }, "generator: a state must have 5056 bytes, got 0"},
      {[](Bytes& b) { put<int32_t>(b, 12, 0); },
       "generator: a state must be seeded (1 at byte 12), got 0"},
      {[](Bytes& b) { put<int32_t>(b, 8, 0); },
       "generator: a state's position must have left + next = 625, or left = 1 and next = 0, got "
       "left 0 and next 84"},
      {[](Bytes& b) {
         put<int32_t>(b, 8, 625);
         put<uint64_t>(b, 16, 0);
       },
       "generator: a state's position must have left + next = 625, or left = 1 and next = 0, got "
       "left 625 and next 0"},
      {[](Bytes& b) { put<uint64_t>(b, 16, uint64_t{1} << 63); },
       "generator: a state's position must have left + next = 625, or left = 1 and next = 0, got "
       "left 541 and next 9223372036854775808"},
      {[](Bytes& b) { put<uint64_t>(b, 24 + 8 * 623, uint64_t{1} << 32); },
       "generator: word 623 of a state must be below 2^32, got 4294967296"},
      {[](Bytes& b) { std::fill(b.begin() + 24, b.begin() + 24 + 8 * ptrdiff_t{624}, uint8_t{0}); },
       "generator: the words of a state must not all be zero"},
      {[](Bytes& b) { put<int32_t>(b, 5040, 2); },
       "generator: the flag at byte 5040 of a state must be 0 or 1, got 2"},
      {[](Bytes& b) { b[5052] = 255; },
       "generator: the flag at byte 5052 of a state must be 0 or 1, got 255"},
      {[=](Bytes& b) { put<double>(b, 5024, infinity); },
       "generator: the cached normal at byte 5024 of a state must be finite, got inf"},
  };
  const Generator used = used_generator();
  for (const auto& test : cases) {
    Bytes bytes = used.get_state();
    test.spoil(bytes);
    Generator generator(5);
    try {
      generator.set_state(bytes);
      ADD_FAILURE() << "accepted: " << test.message;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), test.message);
    }
    EXPECT_EQ(generator.get_state(), Generator(5).get_state());
  }
}

TEST(Generator, DropoutKeysCountCallsAndDrawNothing) {
  Generator generator(1337);
  EXPECT_EQ(generator.next_dropout_key(), (DropoutKey{1337, 0}));
  EXPECT_EQ(generator.next_dropout_key(), (DropoutKey{1337, 1}));
  EXPECT_EQ(generator.dropout_calls(), 2u);
  EXPECT_EQ(generator.get_state(), Generator(1337).get_state());

  // A checkpoint: state and number of calls.
  Generator resumed;
  resumed.set_state(generator.get_state());
  resumed.set_dropout_calls(generator.dropout_calls());
  EXPECT_EQ(resumed.next_dropout_key(), generator.next_dropout_key());
}

TEST(Generator, DefaultGeneratorIsSeededByManualSeed) {
  EXPECT_EQ(Generator().initial_seed(), 67280421310721u);
  manual_seed(1337);
  EXPECT_EQ(default_generator().random(), 1125387415u);
  manual_seed(1337);
  EXPECT_EQ(default_generator().get_state(), Generator(1337).get_state());
}

}  // namespace
}  // namespace chargrad
