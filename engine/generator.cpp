#include "engine/generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "engine/check.h"

namespace chargrad {
namespace {

// Where PyTorch keeps what; little-endian, everything between is zero.
constexpr size_t kSeedAt = 0;               // u64
constexpr size_t kLeftAt = 8;               // i32
constexpr size_t kSeededAt = 12;            // i32, 1
constexpr size_t kNextAt = 16;              // u64
constexpr size_t kWordsAt = 24;             // 624 u64
constexpr size_t kNormalAt = 5024;          // f64
constexpr size_t kHasNormalAt = 5040;       // i32
constexpr size_t kFloatNormalAt = 5048;     // f32
constexpr size_t kHasFloatNormalAt = 5052;  // u8

template <class T>
T load(std::span<const uint8_t> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

template <class T>
void store(std::vector<uint8_t>& bytes, size_t at, std::type_identity_t<T> value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

kernels::Mt19937::State load_stream(std::span<const uint8_t> bytes) {
  const auto seeded = load<int32_t>(bytes, kSeededAt);
  CHARGRAD_CHECK(seeded == 1, "generator: a state must be seeded (1 at byte 12), got ", seeded);
  const auto left = load<int32_t>(bytes, kLeftAt);
  const auto next = load<uint64_t>(bytes, kNextAt);
  constexpr int32_t kWords = kernels::Mt19937::kWords;
  const bool fresh = left == 1 && next == 0;
  const bool used = left >= 1 && left <= kWords && next == static_cast<uint64_t>(kWords + 1 - left);
  CHARGRAD_CHECK(fresh || used,
                 "generator: a state's position must have left + next = 625, or left = 1 and next "
                 "= 0, got left ",
                 left, " and next ", next);

  kernels::Mt19937::State state;
  state.left = left;
  state.next = static_cast<uint32_t>(next);
  for (size_t i = 0; i < state.words.size(); ++i) {
    const auto word = load<uint64_t>(bytes, kWordsAt + 8 * i);
    CHARGRAD_CHECK(word <= std::numeric_limits<uint32_t>::max(), "generator: word ", i,
                   " of a state must be below 2^32, got ", word);
    state.words[i] = static_cast<uint32_t>(word);
  }
  CHARGRAD_CHECK(
      std::any_of(state.words.begin(), state.words.end(), [](uint32_t w) { return w != 0; }),
      "generator: the words of a state must not all be zero");
  return state;
}

// A cached normal and the flag that says whether there is one.
template <class T, class Flag>
std::optional<T> load_normal(std::span<const uint8_t> bytes, size_t at, size_t flag_at) {
  const auto flag = load<Flag>(bytes, flag_at);
  CHARGRAD_CHECK(flag == 0 || flag == 1, "generator: the flag at byte ", flag_at,
                 " of a state must be 0 or 1, got ", static_cast<int64_t>(flag));
  if (flag == 0) {
    return std::nullopt;
  }
  const T value = load<T>(bytes, at);
  CHARGRAD_CHECK(std::isfinite(value), "generator: the cached normal at byte ", at,
                 " of a state must be finite, got ", value);
  return value;
}

}  // namespace

std::vector<uint8_t> Generator::get_state() const {
  std::vector<uint8_t> bytes(static_cast<size_t>(kStateBytes));
  const kernels::Mt19937::State& state = stream_.bits.state();
  store<uint64_t>(bytes, kSeedAt, seed_);
  store<int32_t>(bytes, kLeftAt, state.left);
  store<int32_t>(bytes, kSeededAt, 1);
  store<uint64_t>(bytes, kNextAt, state.next);
  for (size_t i = 0; i < state.words.size(); ++i) {
    store<uint64_t>(bytes, kWordsAt + 8 * i, state.words[i]);
  }
  store<double>(bytes, kNormalAt, stream_.cached_normal.value_or(0.0));
  store<int32_t>(bytes, kHasNormalAt, stream_.cached_normal ? 1 : 0);
  store<float>(bytes, kFloatNormalAt, stream_.cached_float_normal.value_or(0.0f));
  store<uint8_t>(bytes, kHasFloatNormalAt, stream_.cached_float_normal ? 1 : 0);
  return bytes;
}

void Generator::set_state(std::span<const uint8_t> bytes) {
  CHARGRAD_CHECK(static_cast<int64_t>(bytes.size()) == kStateBytes, "generator: a state must have ",
                 kStateBytes, " bytes, got ", bytes.size());
  kernels::RandomStream stream(0);
  stream.bits = kernels::Mt19937(load_stream(bytes));
  stream.cached_normal = load_normal<double, int32_t>(bytes, kNormalAt, kHasNormalAt);
  stream.cached_float_normal =
      load_normal<float, uint8_t>(bytes, kFloatNormalAt, kHasFloatNormalAt);
  seed_ = load<uint64_t>(bytes, kSeedAt);
  stream_ = stream;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) {
  default_generator().manual_seed(seed);
}

}  // namespace chargrad
