// Dropout by Highway: one 64-bit lane per Philox block, of which the low half holds a word and the
// high half does not matter, because a 32 x 32 -> 64 bit product reads the low half only and
// leaves the two words that the next round wants in its two halves.
#include <algorithm>

#include "engine/kernels/cpu.h"
#include "engine/kernels/dropout.h"
#include "engine/kernels/dropout_ref.h"
#include "engine/kernels/highway.h"
#include "engine/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/dropout_simd.cpp"
#include <hwy/foreach_target.h>  // must come before <hwy/highway.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::Rebind<uint32_t, Floats>;
using Lanes64 = hn::Repartition<uint64_t, Floats>;
using VF = hn::Vec<Floats>;
using VW = hn::Vec<Words>;
using V64 = hn::Vec<Lanes64>;

// The words of as many blocks as there are 64-bit lanes, in two vectors of consecutive elements.
// `block` holds the block numbers in the order that first_blocks gives.
struct TwoVectors {
  VW lower, upper;
};

HWY_INLINE V64 product(uint32_t factor, V64 v) {
  const Words d;
  return hn::MulEven(hn::Set(d, factor), hn::BitCast(d, v));
}

// What all blocks of a call share, spread over the lanes once: 32 registers hold it.
struct KeyVectors {
  V64 call_low, call_high;
  V64 low[kPhiloxRounds], high[kPhiloxRounds];
};

HWY_INLINE KeyVectors spread(DropoutKey key) {
  const Lanes64 d;
  KeyVectors keys;
  keys.call_low = hn::Set(d, key.call);
  keys.call_high = hn::Set(d, key.call >> 32);
  auto low = static_cast<uint32_t>(key.seed), high = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    keys.low[round] = hn::Set(d, uint64_t{low});
    keys.high[round] = hn::Set(d, uint64_t{high});
    low += kPhiloxBump0;
    high += kPhiloxBump1;
  }
  return keys;
}

HWY_INLINE TwoVectors philox_words(V64 block, const KeyVectors& keys) {
  const Lanes64 d;
  V64 c0 = block, c1 = hn::ShiftRight<32>(block), c2 = keys.call_low, c3 = keys.call_high;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const V64 p0 = product(kPhiloxMultiply0, c0), p1 = product(kPhiloxMultiply1, c2);
    c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, keys.low[round]);
    c1 = p1;
    c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, keys.high[round]);
    c3 = p0;
  }
  const Words dw;
  // (c0, c1) and (c2, c3) of each block; interleaved, the blocks come out whole and in order.
  const VW front = hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<32>(c1)), hn::BitCast(dw, c0));
  const VW back = hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<32>(c3)), hn::BitCast(dw, c2));
  const V64 f = hn::BitCast(d, front), b = hn::BitCast(d, back);
  return {hn::BitCast(dw, hn::InterleaveLower(d, f, b)),
          hn::BitCast(dw, hn::InterleaveUpper(d, f, b))};
}

// Block numbers 0, N/2, 1, N/2 + 1, ... plus `first`: interleaving works within 128 bits, so the
// even lanes must hold the lower half of the blocks.
HWY_INLINE V64 first_blocks(uint64_t first) {
  const Lanes64 d;
  const V64 lane = hn::Iota(d, 0);
  const V64 odd = hn::And(lane, hn::Set(d, 1));
  const V64 half = hn::Set(d, hn::Lanes(d) / 2);
  return hn::Add(
      hn::Add(hn::ShiftRight<1>(lane), hn::IfThenElseZero(hn::Eq(odd, hn::Set(d, 1)), half)),
      hn::Set(d, first));
}

// y_i = x_i * scale where `word` is not below `limit`, else 0.
HWY_INLINE VF keep(VF x, VF scale, VW word, VW limit) {
  return hn::IfThenZeroElse(hn::RebindMask(Floats(), hn::Lt(word, limit)), hn::Mul(x, scale));
}

// Requires: start is a multiple of 4.
void dropout_floats(const float* x, float* y, int64_t n, float scale, uint32_t threshold,
                    DropoutKey key, int64_t start) {
  const Floats d;
  const Lanes64 d64;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF vscale = hn::Set(d, scale);
  const VW limit = hn::Set(Words(), threshold);
  const V64 step = hn::Set(d64, hn::Lanes(d64));
  const KeyVectors keys = spread(key);
  V64 block = first_blocks(static_cast<uint64_t>(start) / 4);

  for (; n >= 2 * lanes; n -= 2 * lanes, x += 2 * lanes, y += 2 * lanes) {
    const TwoVectors words = philox_words(block, keys);
    block = hn::Add(block, step);
    hn::StoreU(keep(hn::LoadU(d, x), vscale, words.lower, limit), d, y);
    hn::StoreU(keep(hn::LoadU(d, x + lanes), vscale, words.upper, limit), d, y + lanes);
  }
  if (n == 0) {
    return;
  }
  const TwoVectors words = philox_words(block, keys);
  const auto tail = [&](VW word, int64_t first) {
    if (first < n) {
      const auto inside = hn::FirstN(d, static_cast<size_t>(n - first));
      const VF value = hn::MaskedLoad(inside, d, x + first);
      hn::BlendedStore(keep(value, vscale, word, limit), inside, d, y + first);
    }
  };
  tail(words.lower, 0);
  tail(words.upper, lanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(dropout_floats);

namespace {

// Elements a thread takes at a time; about 20 us of work. A multiple of four.
constexpr int64_t kChunk = 65536;

template <class F>
void for_each_chunk(int64_t n, F f) {
  if (n <= kChunk) {
    f(int64_t{0}, n);
    return;
  }
  parallel_for((n + kChunk - 1) / kChunk,
               [&](int64_t c) { f(c * kChunk, std::min(kChunk, n - c * kChunk)); });
}

void dropout_chunk(const double* x, double* y, int64_t n, double p, DropoutKey key, int64_t start) {
  ref::dropout(x, y, n, p, key, start);
}

void dropout_chunk(const float* x, float* y, int64_t n, double p, DropoutKey key, int64_t start) {
  const uint64_t threshold = ref::dropout_threshold(p);
  if (active_tier() == Tier::kRef || threshold > UINT32_MAX) {
    ref::dropout(x, y, n, p, key, start);
    return;
  }
  const int64_t head = std::min(n, (4 - start % 4) % 4);  // Up to the first whole block.
  ref::dropout(x, y, head, p, key, start);
  HWY_DYNAMIC_DISPATCH(dropout_floats)
  (x + head, y + head, n - head, ref::dropout_scale<float>(p), static_cast<uint32_t>(threshold),
   key, start + head);
}

}  // namespace

template <class S>
void dropout(const S* x, S* y, int64_t n, double p, DropoutKey key, int64_t start) {
  for_each_chunk(n, [=](int64_t first, int64_t count) {
    dropout_chunk(x + first, y + first, count, p, key, start + first);
  });
}

template <class S>
void dropout_mask(S* mask, int64_t n, double p, DropoutKey key, int64_t start) {
  for_each_chunk(n, [=](int64_t first, int64_t count) {
    std::fill_n(mask + first, count, S{1});
    dropout_chunk(mask + first, mask + first, count, p, key, start + first);
  });
}

template void dropout(const float*, float*, int64_t, double, DropoutKey, int64_t);
template void dropout(const double*, double*, int64_t, double, DropoutKey, int64_t);
template void dropout_mask(float*, int64_t, double, DropoutKey, int64_t);
template void dropout_mask(double*, int64_t, double, DropoutKey, int64_t);

}  // namespace chargrad::kernels
#endif
