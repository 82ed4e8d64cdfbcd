// Every number against PyTorch's: replays of the cases of tests/golden/make_rng.py and of the
// shared reference by name, bit for bit, on every tier.
#include "engine/kernels/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/cpu.h"
#include "engine/kernels/random_ref.h"
#include "tests/golden/golden.h"

namespace chargrad::kernels {
namespace {

using Values = std::vector<double>;
using Replay = std::function<Values(RandomStream&)>;

template <class T>
Values as_values(const std::vector<T>& v) {
  return Values(v.begin(), v.end());
}

Values join(Values a, const Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Makes a vector of n elements with f(pointer).
template <class T, class F>
std::vector<T> filled(int64_t n, F f) {
  std::vector<T> y(static_cast<size_t>(n));
  f(y.data());
  return y;
}

template <class S>
std::vector<S> draw_uniform(RandomStream& r, int64_t n, double from = 0, double to = 1) {
  return filled<S>(n, [&](S* y) { uniform(r, y, n, from, to); });
}

template <class S>
std::vector<S> draw_normal(RandomStream& r, int64_t n, double mean = 0, double std = 1) {
  return filled<S>(n, [&](S* y) { normal(r, y, n, mean, std); });
}

std::vector<float> draw_strided_normal(RandomStream& r, int64_t n, double mean, double std) {
  return filled<float>(n, [&](float* y) { normal_serial(r, y, n, mean, std); });
}

std::vector<int64_t> draw_integers(RandomStream& r, int64_t low, int64_t high, int64_t n) {
  return filled<int64_t>(
      n, [&](int64_t* y) { integers(r, y, n, low, static_cast<uint64_t>(high - low)); });
}

std::vector<int64_t> draw_permutation(RandomStream& r, int64_t n) {
  return filled<int64_t>(n, [&](int64_t* y) { permutation(r, y, n); });
}

template <class S>
std::vector<S> draw_bernoulli(RandomStream& r, int64_t n, double p) {
  return filled<S>(n, [&](S* y) { bernoulli(r, y, n, p); });
}

template <class S>
std::vector<S> draw_bernoulli_each(RandomStream& r, const std::vector<S>& p) {
  const auto n = static_cast<int64_t>(p.size());
  return filled<S>(n, [&](S* y) { bernoulli(r, p.data(), y, n); });
}

template <class S>
std::vector<S> draw_exponential(RandomStream& r, int64_t n, double lambda) {
  return filled<S>(n, [&](S* y) { exponential(r, y, n, lambda); });
}

template <class S>
std::vector<int64_t> draw_multinomial(RandomStream& r, const std::vector<S>& p, int64_t rows,
                                      int64_t samples, bool replacement) {
  const auto cols = static_cast<int64_t>(p.size()) / rows;
  return filled<int64_t>(rows * samples, [&](int64_t* y) {
    multinomial(r, p.data(), y, rows, cols, samples, replacement);
  });
}

// nn.Linear's start: weight, then bias, uniform within 1 / sqrt(inputs).
Values draw_linear(RandomStream& r, int64_t inputs, int64_t outputs, bool bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  Values values = as_values(draw_uniform<float>(r, inputs * outputs, -bound, bound));
  return bias ? join(values, as_values(draw_uniform<float>(r, outputs, -bound, bound))) : values;
}

Values draw_embedding(RandomStream& r, int64_t rows, int64_t cols, size_t first) {
  Values values = as_values(draw_normal<float>(r, rows * cols));
  values.resize(first);
  return values;
}

Values draw_after_a_mixture(RandomStream& r) {
  draw_normal<float>(r, 3);
  draw_uniform<float>(r, 2);
  draw_normal<float>(r, 20);
  draw_integers(r, 0, 10, 2);
  return as_values(draw_normal<float>(r, 3));
}

// What 20 calls of a sampler draw.
Values draw_symbols(RandomStream& r) {
  std::vector<float> p;
  for (const float logit : {0.1f, -0.2f, 0.3f, -0.2f, 0.5f}) {
    p.push_back(std::exp(logit));
  }
  Values ids;
  for (int i = 0; i < 20; ++i) {
    ids = join(ids, as_values(draw_multinomial(r, p, 1, 1, false)));
  }
  return ids;
}

template <class S>
std::vector<S> weights() {
  return {0.5, 0.0, 2.0, 0.25, 1.0, 0.125, 3.0, 1.0, 0.0, 0.0, 1.0, 0.5};
}

constexpr int64_t kWide = int64_t{1} << 28;

const std::map<std::string, Replay> kGoldenReplays = {
    {"rand(8)", [](auto& r) { return as_values(draw_uniform<float>(r, 8)); }},
    {"rand(8) float64", [](auto& r) { return as_values(draw_uniform<double>(r, 8)); }},
    {"rand(4), seed 0", [](auto& r) { return as_values(draw_uniform<float>(r, 4)); }},
    {"rand(4), seed -1", [](auto& r) { return as_values(draw_uniform<float>(r, 4)); }},
    {"rand(4), seed 2**32 + 1337", [](auto& r) { return as_values(draw_uniform<float>(r, 4)); }},
    {"uniform(9, -0.3, 0.7)",
     [](auto& r) { return as_values(draw_uniform<float>(r, 9, -0.3, 0.7)); }},
    {"uniform(5, -0.3, 0.7) float64",
     [](auto& r) { return as_values(draw_uniform<double>(r, 5, -0.3, 0.7)); }},
    {"randn(5)", [](auto& r) { return as_values(draw_normal<float>(r, 5)); }},
    {"randn(15), randn(3)",
     [](auto& r) {
       const Values first = as_values(draw_normal<float>(r, 15));
       return join(first, as_values(draw_normal<float>(r, 3)));
     }},
    {"randn(16)", [](auto& r) { return as_values(draw_normal<float>(r, 16)); }},
    {"randn(37)", [](auto& r) { return as_values(draw_normal<float>(r, 37)); }},
    {"randn(20) float64", [](auto& r) { return as_values(draw_normal<double>(r, 20)); }},
    {"normal(20, 0.5, 0.02)",
     [](auto& r) { return as_values(draw_normal<float>(r, 20, 0.5, 0.02)); }},
    {"normal(18, 0.5, 0.02) float64",
     [](auto& r) { return as_values(draw_normal<double>(r, 18, 0.5, 0.02)); }},
    {"normal(5, 0.5, 0.02) float64",
     [](auto& r) { return as_values(draw_normal<double>(r, 5, 0.5, 0.02)); }},
    {"strided normal(17, 0.5, 0.02)",
     [](auto& r) { return as_values(draw_strided_normal(r, 17, 0.5, 0.02)); }},
    {"randint(65, 12)", [](auto& r) { return as_values(draw_integers(r, 0, 65, 12)); }},
    {"randint(-5, 5, 12)", [](auto& r) { return as_values(draw_integers(r, -5, 5, 12)); }},
    {"randint(2**28 - 1, 4)", [](auto& r) { return as_values(draw_integers(r, 0, kWide - 1, 4)); }},
    {"randint(2**28, 4)", [](auto& r) { return as_values(draw_integers(r, 0, kWide, 4)); }},
    {"randint(-5, 2**40, 4)",
     [](auto& r) { return as_values(draw_integers(r, -5, kWide * 4096, 4)); }},
    {"randperm(20)", [](auto& r) { return as_values(draw_permutation(r, 20)); }},
    {"bernoulli(24, 0.9)", [](auto& r) { return as_values(draw_bernoulli<float>(r, 24, 0.9)); }},
    {"bernoulli(0.9 x 24)",
     [](auto& r) { return as_values(draw_bernoulli_each(r, std::vector<float>(24, 0.9f))); }},
    {"bernoulli(0.9 x 24) float64",
     [](auto& r) { return as_values(draw_bernoulli_each(r, std::vector<double>(24, 0.9))); }},
    {"exponential(8, 1)", [](auto& r) { return as_values(draw_exponential<float>(r, 8, 1)); }},
    {"exponential(5, 2.7) float64",
     [](auto& r) { return as_values(draw_exponential<double>(r, 5, 2.7)); }},
    {"20 x multinomial(softmax, 1)", draw_symbols},
    {"multinomial(2 x 6, 4)",
     [](auto& r) { return as_values(draw_multinomial(r, weights<float>(), 2, 4, false)); }},
    {"multinomial(2 x 6, 12, replacement)",
     [](auto& r) { return as_values(draw_multinomial(r, weights<float>(), 2, 12, true)); }},
    {"multinomial(2 x 6, 3) float64",
     [](auto& r) { return as_values(draw_multinomial(r, weights<double>(), 2, 3, false)); }},
    {"Linear(4, 3)", [](auto& r) { return draw_linear(r, 4, 3, true); }},
    {"Embedding(65, 8), first 24", [](auto& r) { return draw_embedding(r, 65, 8, 24); }},
    {"mixture", draw_after_a_mixture},
};

const std::map<std::string, Replay> kSharedReplays = {
    {"rand(8)", kGoldenReplays.at("rand(8)")},
    {"rand(8) float64", kGoldenReplays.at("rand(8) float64")},
    {"randn(5)", kGoldenReplays.at("randn(5)")},
    {"randn(15) then randn(3): cached normal", kGoldenReplays.at("randn(15), randn(3)")},
    {"randn(16)", kGoldenReplays.at("randn(16)")},
    {"randn(37): last block redrawn", kGoldenReplays.at("randn(37)")},
    {"randn(37) float64", [](auto& r) { return as_values(draw_normal<double>(r, 37)); }},
    {"empty(20).normal_(0.5, 0.02)", kGoldenReplays.at("normal(20, 0.5, 0.02)")},
    {"empty(9).uniform_(-0.3, 0.7)", kGoldenReplays.at("uniform(9, -0.3, 0.7)")},
    {"randint(65, (12,))", kGoldenReplays.at("randint(65, 12)")},
    {"randint(1003790, (12,))",
     [](auto& r) { return as_values(draw_integers(r, 0, 1003790, 12)); }},
    {"randperm(20)", kGoldenReplays.at("randperm(20)")},
    {"empty(24).bernoulli_(0.9)", kGoldenReplays.at("bernoulli(24, 0.9)")},
    {"bernoulli(full((24,), 0.9))", kGoldenReplays.at("bernoulli(0.9 x 24)")},
    {"empty(8).exponential_(1)", kGoldenReplays.at("exponential(8, 1)")},
    {"Linear(4, 3): weight then bias", kGoldenReplays.at("Linear(4, 3)")},
    {"Linear(3, 2, bias=False) weight", [](auto& r) { return draw_linear(r, 3, 2, false); }},
    {"Embedding(65, 8) first 3 rows", kGoldenReplays.at("Embedding(65, 8), first 24")},
    {"20 x multinomial(softmax([.1,-.2,.3,-.2,.5]), 1)",
     kGoldenReplays.at("20 x multinomial(softmax, 1)")},
    {"randn(3) after randn(3), rand(2), randn(20), randint(10,(2,))", draw_after_a_mixture},
    {"seed 2**32 + 1337: rand(4)", kGoldenReplays.at("rand(4), seed 0")},
    {"seed -1: rand(4)", kGoldenReplays.at("rand(4), seed 0")},
};

// Replays all cases; a case of the file without a replay, or the reverse, is a failure.
void check_cases(const nlohmann::json& cases, const std::map<std::string, Replay>& replays) {
  EXPECT_EQ(cases.size(), replays.size());
  for (const auto& entry : cases) {
    const auto name = entry.at("name").get<std::string>();
    SCOPED_TRACE(name);
    ASSERT_TRUE(replays.contains(name));
    RandomStream stream(static_cast<uint32_t>(tests::seed_of(entry)));
    // Equal as numbers is equal to the last bit but for the sign of a zero.
    EXPECT_EQ(replays.at(name)(stream), tests::values_of(entry));
  }
}

TEST(Random, GoldenCases) {
  check_cases(tests::golden("rng.json").at("cases"), kGoldenReplays);
}

TEST(Random, SharedReferenceCases) {
  const auto reference = tests::shared_json("reference/rng.json");
  if (!reference) {
    GTEST_SKIP() << "needs CHARGRAD_SHARED for reference/rng.json";
  }
  check_cases(reference->at("cases"), kSharedReplays);
}

template <class T>
std::string checksum(const std::vector<T>& v) {
  uint64_t value = 0xcbf29ce484222325u;  // FNV-1a.
  const auto* bytes = reinterpret_cast<const unsigned char*>(v.data());
  for (size_t i = 0; i < v.size() * sizeof(T); ++i) {
    value = (value ^ bytes[i]) * 0x100000001b3u;
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Large fills cross the chunks in which the kernels work.
TEST(Random, LargeFillsHaveTheGoldenBytes) {
  constexpr int64_t kLarge = 100003;
  const std::map<std::string, std::function<std::string(RandomStream&)>> fills = {
      {"rand(100003)", [](auto& r) { return checksum(draw_uniform<float>(r, kLarge)); }},
      {"uniform(100003, -0.3, 0.7)",
       [](auto& r) { return checksum(draw_uniform<float>(r, kLarge, -0.3, 0.7)); }},
      {"randn(100003)", [](auto& r) { return checksum(draw_normal<float>(r, kLarge)); }},
      {"randn(4096)", [](auto& r) { return checksum(draw_normal<float>(r, 4096)); }},
      {"normal(100003, 0.5, 0.02)",
       [](auto& r) { return checksum(draw_normal<float>(r, kLarge, 0.5, 0.02)); }},
      {"randperm(100003)", [](auto& r) { return checksum(draw_permutation(r, kLarge)); }},
  };
  const auto cases = tests::golden("rng.json").at("fills");
  EXPECT_EQ(cases.size(), fills.size());
  for (const auto& entry : cases) {
    const auto name = entry.at("name").get<std::string>();
    SCOPED_TRACE(name);
    RandomStream stream(static_cast<uint32_t>(tests::seed_of(entry)));
    EXPECT_EQ(fills.at(name)(stream), entry.at("fnv1a").get<std::string>());
  }
}

TEST(Random, FillsInPiecesDrawTheSameWords) {
  Mt19937 words(5489);
  std::mt19937 standard(5489);
  for (const int64_t n : {1, 2, 623, 624, 625, 0, 1247, 3}) {
    const auto piece = filled<uint32_t>(n, [&](uint32_t* y) { words.fill(y, n); });
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(piece[static_cast<size_t>(i)], standard()) << "piece of " << n << " at " << i;
    }
  }
  EXPECT_EQ(words.next32(), standard());
  const uint64_t high = standard(), low = standard();
  EXPECT_EQ(words.next64(), high << 32 | low);
}

TEST(Random, ScaleShiftOfEveryLengthIsTheReferences) {
  RandomStream stream(11);
  for (int64_t n = 0; n <= 67; ++n) {
    std::vector<float> x = draw_uniform<float>(stream, n + 1);
    std::vector<float> expected = x;
    scale_shift(x.data() + 1, n, 0.7f, -0.3f);
    ref::scale_shift(expected.data() + 1, n, 0.7f, -0.3f);
    EXPECT_EQ(x, expected) << n;
  }
}

// The vector code and the plain one agree to the last bit, also at the ends of the unit interval.
TEST(Random, NormalBlocksAreTheReferences) {
  RandomStream stream(12);
  std::vector<float> x = draw_uniform<float>(stream, 16 * int64_t{5000});
  const float extremes[] = {0.0f, 0x1p-24f, 1.0f - 0x1p-24f, 0.25f, 0.5f, 0.75f, 0.125f, 0.375f};
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      x[16 * i + j] = extremes[i];
      x[16 * i + 8 + j] = extremes[j];
    }
  }
  for (const auto& [mean, std] : {std::pair{0.0f, 1.0f}, {0.5f, 0.02f}, {-3.0f, 0.0f}}) {
    std::vector<float> got = x, expected = x;
    normal_blocks(got.data(), 5000, mean, std);
    ref::normal_blocks(expected.data(), 5000, mean, std);
    EXPECT_EQ(checksum(got), checksum(expected)) << mean << " " << std;
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float v) { return std::isfinite(v); }));
  }
}

TEST(Random, LongPermutationsTakeEveryElementOnce) {
  RandomStream stream(13), copy = stream;
  const auto y = filled<int64_t>(50, [&](int64_t* p) { permutation_inside_out(stream, p, 50); });
  std::vector<int64_t> sorted = y;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
    copy.bits.next64();
  }
  EXPECT_EQ(stream.bits.state(), copy.bits.state());
  EXPECT_NE(y, sorted);
  // The place of the last element is its own draw.
  RandomStream again(13);
  for (int i = 0; i < 49; ++i) {
    again.bits.next64();
  }
  EXPECT_EQ(y[again.bits.next64() % 50], 49);
}

TEST(Random, CertainEventsAreCertain) {
  RandomStream stream(14);
  EXPECT_THAT(draw_bernoulli<float>(stream, 1000, 0.0), testing::Each(0.0f));
  EXPECT_THAT(draw_bernoulli<double>(stream, 1000, 1.0), testing::Each(1.0));
  EXPECT_THAT(draw_bernoulli_each(stream, std::vector<float>(2000, 1.0f)), testing::Each(1.0f));
  EXPECT_THAT(draw_multinomial(stream, std::vector<float>{0, 0, 3, 0}, 1, 1000, true),
              testing::Each(2));
  EXPECT_THAT(draw_normal<float>(stream, 100, 2.5, 0.0), testing::Each(2.5f));
  EXPECT_THAT(draw_normal<double>(stream, 3, 2.5, 0.0), testing::Each(2.5));
}

TEST(Random, NothingIsDrawnForNoElements) {
  RandomStream stream(15), untouched = stream;
  draw_uniform<float>(stream, 0);
  draw_normal<double>(stream, 0);
  draw_bernoulli<float>(stream, 0, 0.5);
  draw_permutation(stream, 0);
  draw_permutation(stream, 1);
  EXPECT_EQ(stream.bits.state(), untouched.bits.state());
}

// Without replacement all four columns of positive weight come before the others and each once.
TEST(Random, MultinomialWithoutReplacementIsAnOrder) {
  RandomStream stream(16);
  int first_is_heaviest = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto ids = draw_multinomial(stream, std::vector<float>{0, 1, 2, 0, 5, 2}, 1, 4, false);
    EXPECT_THAT(ids, testing::UnorderedElementsAre(1, 2, 4, 5));
    first_is_heaviest += ids[0] == 4 ? 1 : 0;
  }
  // Half of the weight: binomial with deviation sqrt(2000 / 4) = 22; five of them.
  EXPECT_NEAR(first_is_heaviest, kTrials / 2.0, 112);
}

}  // namespace
}  // namespace chargrad::kernels
