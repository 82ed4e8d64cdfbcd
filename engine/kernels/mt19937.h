// The Mersenne Twister MT19937 with 32-bit outputs, and the stream of random numbers that the
// kernels of random.h draw from. The raw outputs equal std::mt19937's; the state can be read and
// set, and many words come out at once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace chargrad::kernels {

class Mt19937 {
 public:
  static constexpr int kWords = 624;

  // The state in the terms of PyTorch's generator: `next` is the word that comes next, `left` is
  // one more than the number of words that can be drawn before the state is renewed. Either
  // left + next == 625, or the state is freshly seeded: left 1, next 0.
  struct State {
    std::array<uint32_t, kWords> words{};
    int32_t left = 1;
    uint32_t next = 0;

    bool operator==(const State&) const = default;
  };

  explicit Mt19937(uint32_t seed);
  // Requires: a state as described above, with a word that is not zero.
  explicit Mt19937(const State& state) : state_(state) {}

  uint32_t next32() {
    if (state_.left == 1) {
      renew();
    }
    --state_.left;
    return temper(state_.words[state_.next++]);
  }
  // Two draws; the first is the high word.
  uint64_t next64() {
    const uint64_t high = next32();
    return high << 32 | next32();
  }
  // The next n outputs.
  void fill(uint32_t* out, int64_t n);

  const State& state() const { return state_; }

 private:
  // Makes the next kWords words; `left` and `next` are those of a state before its first draw.
  void renew();

  static uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

  State state_;
};

// What one generator owns: the raw stream and the second values of the last Box-Muller pairs.
// The float one is never made nor used on a CPU; it is kept because a saved state holds it.
struct RandomStream {
  explicit RandomStream(uint32_t seed) : bits(seed) {}

  Mt19937 bits;
  std::optional<double> cached_normal;
  std::optional<float> cached_float_normal;
};

}  // namespace chargrad::kernels
