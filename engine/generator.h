// The source of every random number: PyTorch's CPU generator, seed for seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/dropout.h"
#include "engine/kernels/mt19937.h"

namespace chargrad {

using kernels::DropoutKey;

// A value: copies go their own ways. Not thread-safe.
class Generator {
 public:
  // The seed of a generator that nobody seeded, as torch.Generator().
  static constexpr uint64_t kDefaultSeed = 67280421310721;
  // Bytes of a saved state.
  static constexpr int64_t kStateBytes = 5056;

  explicit Generator(uint64_t seed = kDefaultSeed)
      : stream_(static_cast<uint32_t>(seed)), seed_(seed) {}

  // Starts the stream again, without a cached normal and with dropout call 0. The low 32 bits of
  // the seed choose the stream; a negative seed wraps around. Dropout keys take all 64.
  void manual_seed(uint64_t seed) { *this = Generator(seed); }
  uint64_t initial_seed() const { return seed_; }

  // 32 and 64 random bits; the latter are two draws, high word first.
  uint32_t random() { return stream_.bits.next32(); }
  uint64_t random64() { return stream_.bits.next64(); }

  // What the kernels of random.h draw from.
  kernels::RandomStream& stream() { return stream_; }

  // The state as the bytes of torch.get_rng_state(): seed, stream and cached normals. The number
  // of dropout calls is not in it. set_state throws unless the bytes are such a state, and then
  // changes nothing.
  std::vector<uint8_t> get_state() const;
  void set_state(std::span<const uint8_t> bytes);

  // A new key for each call; it depends on the seed and on the number of calls before, and draws
  // nothing from the stream.
  DropoutKey next_dropout_key() { return {seed_, dropout_calls_++}; }
  // Keys made since the generator was seeded. A checkpoint saves it beside the state.
  uint64_t dropout_calls() const { return dropout_calls_; }
  void set_dropout_calls(uint64_t calls) { dropout_calls_ = calls; }

 private:
  kernels::RandomStream stream_;
  uint64_t seed_;
  uint64_t dropout_calls_ = 0;
};

// The generator that ops use unless they are given one. One thread at a time may use it.
Generator& default_generator();

// Seeds the default generator; as torch.manual_seed.
void manual_seed(uint64_t seed);

}  // namespace chargrad
