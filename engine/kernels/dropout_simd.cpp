// Dropout by Highway: one 64-bit lane per Philox block, of which the low half holds a word and the
// high half does not matter, because a 32 x 32 -> 64 bit product reads the low half only and
// leaves the two words that the next round wants in its two halves.
#include <algorithm>
#include <type_traits>

#include "engine/kernels/cpu.h"
#include "engine/kernels/dropout.h"
#include "engine/kernels/dropout_ref.h"
#include "engine/kernels/dropout_rows.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/mixed.h"
#include "engine/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/dropout_simd.cpp"
#include <hwy/foreach_target.h>  // must come before <hwy/highway.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

using Words = DBits;
using Lanes64 = hn::Repartition<uint64_t, D>;
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

// x * scale where `word` is not below `limit`, else 0.
HWY_INLINE V keep(V x, V scale, VW word, VW limit) {
  return hn::IfThenZeroElse(hn::RebindMask(D(), hn::Lt(word, limit)), hn::Mul(x, scale));
}

// One row of a mask, its first element number `start`.
template <class S>
HWY_INLINE void dropout_row(const S* x, S* y, int64_t n, V vscale, VW limit, const KeyVectors& keys,
                            int64_t start) {
  const int64_t N = lane_count();
  const V64 step = hn::Set(Lanes64(), hn::Lanes(Lanes64()));
  V64 block = first_blocks(static_cast<uint64_t>(start) / 4);
  const auto apply = [&](auto lanes, int64_t i, VW word) {
    lanes.store(keep(lanes.load(x + i), vscale, word, limit), y + i);
  };

  int64_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const TwoVectors words = philox_words(block, keys);
    block = hn::Add(block, step);
    apply(AllLanes(), i, words.lower);
    apply(AllLanes(), i + N, words.upper);
  }
  if (i < n) {
    const TwoVectors words = philox_words(block, keys);
    apply(FirstLanes(HWY_MIN(N, n - i)), i, words.lower);
    if (i + N < n) {
      apply(FirstLanes(n - i - N), i + N, words.upper);
    }
  }
}

template <class S>
void dropout_lanes(const S* x, S* y, int64_t n, float scale, uint32_t threshold, DropoutKey key,
                   int64_t start) {
  dropout_row(x, y, n, set(scale), hn::Set(Words(), threshold), spread(key), start);
}

// Requires: start and start_ld are multiples of 4.
void dropout_rows_simd(const DropoutRows& a, float scale, uint32_t threshold, DropoutKey key) {
  const V vscale = set(scale);
  const VW limit = hn::Set(Words(), threshold);
  const KeyVectors keys = spread(key);
  for (int64_t r = 0; r < a.rows; ++r) {
    dropout_row(a.x + r * a.x_ld, a.y + r * a.y_ld, a.cols, vscale, limit, keys,
                a.start + r * a.start_ld);
  }
}

FloatTable<DropoutFunction> dropout_table() {
  return {{&dropout_lanes<float>}, {&dropout_lanes<bfloat16>}};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(dropout_table);
HWY_EXPORT(dropout_rows_simd);

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

template <class S>
void dropout_chunk(const S* x, S* y, int64_t n, double p, DropoutKey key, int64_t start) {
  if constexpr (!std::is_same_v<S, double>) {
    const uint64_t threshold = ref::dropout_threshold(p);
    if (active_tier() != Tier::kRef && threshold <= UINT32_MAX) {
      const int64_t head = std::min(n, (4 - start % 4) % 4);  // Up to the first whole block.
      ref::dropout(x, y, head, p, key, start);
      const DropoutFunction<S> f = HWY_DYNAMIC_DISPATCH(dropout_table)();
      f.run(x + head, y + head, n - head, ref::dropout_scale<float>(p),
            static_cast<uint32_t>(threshold), key, start + head);
      return;
    }
  }
  ref::dropout(x, y, n, p, key, start);
}

}  // namespace

template <class S>
void dropout(const S* x, S* y, int64_t n, double p, DropoutKey key, int64_t start) {
  for_each_chunk(n, [=](int64_t first, int64_t count) {
    dropout_chunk(x + first, y + first, count, p, key, start + first);
  });
}

void dropout_rows(const DropoutRows& a, double p, DropoutKey key) {
  const uint64_t threshold = ref::dropout_threshold(p);
  if (active_tier() != Tier::kRef && threshold <= UINT32_MAX && a.start % 4 == 0 &&
      a.start_ld % 4 == 0) {
    HWY_DYNAMIC_DISPATCH(dropout_rows_simd)
    (a, ref::dropout_scale<float>(p), static_cast<uint32_t>(threshold), key);
    return;
  }
  for (int64_t r = 0; r < a.rows; ++r) {
    dropout_chunk(a.x + r * a.x_ld, a.y + r * a.y_ld, a.cols, p, key, a.start + r * a.start_ld);
  }
}

template <class S>
void dropout_mask(S* mask, int64_t n, double p, DropoutKey key, int64_t start) {
  for_each_chunk(n, [=](int64_t first, int64_t count) {
    std::fill_n(mask + first, count, S{1});
    dropout_chunk(mask + first, mask + first, count, p, key, start + first);
  });
}

template void dropout(const float*, float*, int64_t, double, DropoutKey, int64_t);
template void dropout(const bfloat16*, bfloat16*, int64_t, double, DropoutKey, int64_t);
template void dropout(const double*, double*, int64_t, double, DropoutKey, int64_t);
template void dropout_mask(float*, int64_t, double, DropoutKey, int64_t);
template void dropout_mask(double*, int64_t, double, DropoutKey, int64_t);

}  // namespace chargrad::kernels
#endif
