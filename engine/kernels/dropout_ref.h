// Dropout element by element; see dropout.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/kernels/dropout.h"
#include "engine/kernels/philox.h"

namespace chargrad::kernels::ref {

// Words below this are dropped; 2^32 drops all.
inline uint64_t dropout_threshold(double p) {
  return static_cast<uint64_t>(std::nearbyint(p * 0x1p32));
}

// What a kept element is multiplied by.
template <class S>
S dropout_scale(double p) {
  return static_cast<S>(1 / (1 - p));
}

// The words of elements 4 * block to 4 * block + 3.
inline PhiloxCounter dropout_words(DropoutKey key, uint64_t block) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  return philox4x32_10({low(block), high(block), low(key.call), high(key.call)},
                       {low(key.seed), high(key.seed)});
}

// Calls f(i, kept) for i in [0, n), kept telling of element start + i.
template <class F>
void for_each_kept(int64_t n, double p, DropoutKey key, int64_t start, F f) {
  const uint64_t threshold = dropout_threshold(p);
  for (int64_t i = 0; i < n;) {
    const auto lane = static_cast<int>((start + i) % 4);
    const PhiloxCounter words = dropout_words(key, static_cast<uint64_t>((start + i) / 4));
    for (int k = lane; k < 4 && i < n; ++k, ++i) {
      f(i, words[static_cast<size_t>(k)] >= threshold);
    }
  }
}

template <class S>
void dropout(const S* x, S* y, int64_t n, double p, DropoutKey key, int64_t start) {
  const auto scale = dropout_scale<Wide<S>>(p);
  for_each_kept(n, p, key, start,
                [=](int64_t i, bool kept) { y[i] = kept ? static_cast<S>(x[i] * scale) : S(0); });
}

template <class S>
void dropout_mask(S* mask, int64_t n, double p, DropoutKey key, int64_t start) {
  const S scale = dropout_scale<S>(p);
  for_each_kept(n, p, key, start, [=](int64_t i, bool kept) { mask[i] = kept ? scale : S{0}; });
}

}  // namespace chargrad::kernels::ref
