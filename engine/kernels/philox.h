// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): random words
// that are a function of a counter and a key, in any order and on any thread. Dropout masks are
// made of them; see dropout.h.
#pragma once

#include <array>
#include <cstdint>

namespace chargrad::kernels {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiply0 = 0xd2511f53u;
inline constexpr uint32_t kPhiloxMultiply1 = 0xcd9e8d57u;
// What is added to the key's words after each round: the golden ratio and sqrt(3) - 1.
inline constexpr uint32_t kPhiloxBump0 = 0x9e3779b9u;
inline constexpr uint32_t kPhiloxBump1 = 0xbb67ae85u;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter c, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMultiply0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMultiply1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kPhiloxBump0;
    key[1] += kPhiloxBump1;
  }
  return c;
}

}  // namespace chargrad::kernels
