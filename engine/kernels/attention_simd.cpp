// attention_rows.h in Highway vectors.
#include <cmath>
#include <cstdint>

#include "engine/kernels/attention_rows.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"
#include "engine/kernels/math_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

HWY_INLINE void zero_fill(float* s, int64_t from, int64_t to) {
  for_lanes(to - from, [&](auto lanes, int64_t j) { lanes.store(hn::Zero(D()), s + from + j); });
}

// exp(x) to 2e-7 for x <= 80; 0 below -86. A NaN stays one. As vec_exp, but with one factor 2^k,
// added to the exponent: k >= -125 keeps the sum normal.
HWY_INLINE V exp_of_score(V x) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V lowest = hn::Set(d, -86.0f);
  const auto vanishes = hn::Lt(x, lowest);
  x = hn::Max(lowest, x);  // In this order a NaN gets through.
  const V shifter = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0f), shifter);
  const V k = hn::Sub(shifted, shifter);
  V r = hn::NegMulAdd(k, hn::Set(d, 0x1.62e400p-1f), x);
  r = hn::NegMulAdd(k, hn::Set(d, 0x1.7f7d1cp-20f), r);
  const V p =
      horner(d, r, 0x1.6a2318p-10f, 0x1.123a8ep-7f, 0x1.5558f6p-5f, 0x1.555490p-3f, 0x1.fffffcp-2f);
  const V exp_r = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), p, r));
  const auto bits = hn::Add(hn::BitCast(di, exp_r), hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(vanishes, hn::BitCast(d, bits));
}

// Makes the scores of one row from its products.
struct Scores {
  V scale;
  const float* mask;  // or null

  template <class Lanes>
  HWY_INLINE V operator()(Lanes lanes, const float* s, int64_t j) const {
    const V x = hn::Mul(lanes.load(s + j), scale);
    return mask == nullptr ? x : hn::Add(x, lanes.load(mask + j));
  }
};

HWY_INLINE Scores scores_of(const ScoreBlock& block, int64_t r) {
  return {hn::Set(D(), block.scale),
          block.mask == nullptr ? nullptr : block.mask + r * block.mask_ld};
}

// The largest score; NaN where one is.
HWY_INLINE float max_score(const Scores& scores, const float* s, int64_t n) {
  const D d;
  const V lowest = hn::Set(d, -INFINITY);
  V max = lowest;
  auto nan = hn::IsNaN(lowest);
  for_lanes(n, [&](auto lanes, int64_t j) {
    const V x = lanes.select(scores(lanes, s, j), lowest);
    max = hn::Max(max, x);
    nan = hn::Or(nan, hn::IsNaN(x));
  });
  return hn::AllFalse(d, nan) ? hn::GetLane(hn::MaxOfLanes(d, max)) : NAN;
}

void exponentials_simd(const ScoreBlock& block, float* s, const SoftmaxRows& softmax) {
  const D d;
  for (int64_t r = 0; r < block.rows; ++r, s += block.ld) {
    const int64_t n = block.seen(r);
    const Scores scores = scores_of(block, r);
    const float before = softmax.max[r];
    const float here = max_score(scores, s, n);
    if (here == -INFINITY) {  // Nothing to be seen.
      zero_fill(s, 0, block.cols);
      softmax.shrink[r] = 1;
      continue;
    }
    const float max = here <= before || std::isnan(before) ? before : here;
    const V shift = hn::Set(d, max);
    const double sum = sum_lanes(n, [&](auto lanes, int64_t j) {
      const V e = exp_of_score(hn::Sub(scores(lanes, s, j), shift));
      lanes.store(e, s + j);
      return e;
    });
    zero_fill(s, n, block.cols);
    const float shrink = before == -INFINITY ? 0.0f : std::exp(before - max);
    softmax.shrink[r] = shrink;
    softmax.sum[r] = static_cast<float>(static_cast<double>(softmax.sum[r]) * shrink + sum);
    softmax.max[r] = max;
  }
}

void normalizers_simd(int64_t rows, const SoftmaxRows& softmax, float* lse) {
  const D d;
  for_lanes(rows, [&](auto lanes, int64_t r) {
    const V sum = lanes.load(softmax.sum + r);
    const auto empty = hn::Eq(sum, hn::Zero(d));
    lanes.store(hn::Add(lanes.load(softmax.max + r), vec_log(d, sum)), lse + r);
    lanes.store(hn::IfThenZeroElse(empty, hn::Div(hn::Set(d, 1.0f), sum)), softmax.sum + r);
  });
}

void scale_rows_simd(int64_t rows, int64_t cols, const float* factors, float* y, int64_t ld) {
  for (int64_t r = 0; r < rows; ++r, y += ld) {
    const V factor = hn::Set(D(), factors[r]);
    for_lanes(cols, [&](auto lanes, int64_t j) {
      lanes.store(hn::Mul(lanes.load(y + j), factor), y + j);
    });
  }
}

void weight_grads_simd(const ScoreBlock& block, float* s, float* dp, const float* lse,
                       const float* delta, const float* m) {
  const D d;
  const V scale = hn::Set(d, block.scale);
  for (int64_t r = 0; r < block.rows; ++r, s += block.ld, dp += block.ld) {
    const int64_t n = lse[r] == -INFINITY ? 0 : block.seen(r);
    const Scores scores = scores_of(block, r);
    const V shift = hn::Set(d, lse[r]), minus_delta = hn::Set(d, -delta[r]);
    const float* const factors = m == nullptr ? nullptr : m + r * block.ld;
    for_lanes(n, [&](auto lanes, int64_t j) {
      const V p = exp_of_score(hn::Sub(scores(lanes, s, j), shift));
      V kept = p, grad = lanes.load(dp + j);
      if (factors != nullptr) {
        const V factor = lanes.load(factors + j);
        kept = hn::Mul(p, factor);
        grad = hn::MulAdd(grad, factor, minus_delta);
      } else {
        grad = hn::Add(grad, minus_delta);
      }
      lanes.store(kept, s + j);
      lanes.store(hn::Mul(hn::Mul(p, scale), grad), dp + j);
    });
    zero_fill(s, n, block.cols);
    zero_fill(dp, n, block.cols);
  }
}

template <class S>
void row_dots(int64_t rows, int64_t cols, const MatrixView<S>& dy, const MatrixView<S>& y,
              float* delta) {
  for (int64_t r = 0; r < rows; ++r) {
    const S* const a = dy.data + r * dy.row_stride;
    const S* const b = y.data + r * y.row_stride;
    delta[r] = static_cast<float>(sum_lanes(cols, [&](auto lanes, int64_t e) {
      return hn::Mul(lanes.load(a + e), lanes.load(b + e));
    }));
  }
}

void row_dots_float(int64_t rows, int64_t cols, const MatrixView<float>& dy,
                    const MatrixView<float>& y, float* delta) {
  row_dots(rows, cols, dy, y, delta);
}

void row_dots_bfloat16(int64_t rows, int64_t cols, const MatrixView<bfloat16>& dy,
                       const MatrixView<bfloat16>& y, float* delta) {
  row_dots(rows, cols, dy, y, delta);
}

// The upper halves of two vectors of rounded bits, one after the other.
HWY_INLINE void store_halves(hn::Vec<DBits> first, hn::Vec<DBits> second, bfloat16* to) {
  const hn::Repartition<uint16_t, DBits> d;
  hn::StoreU(hn::ConcatOdd(d, hn::BitCast(d, second), hn::BitCast(d, first)), d, &to->bits);
}

void round_rows_simd(int64_t rows, int64_t cols, const float* x, int64_t ld, const float* factors,
                     bfloat16* to, int64_t to_ld) {
  const D d;
  const int64_t N = lane_count();
  for (int64_t r = 0; r < rows; ++r, x += ld, to += to_ld) {
    const V factor = hn::Set(d, factors == nullptr ? 1.0f : factors[r]);
    int64_t j = 0;
    for (; j + 2 * N <= cols; j += 2 * N) {
      store_halves(rounded_bits(hn::Mul(hn::LoadU(d, x + j), factor)),
                   rounded_bits(hn::Mul(hn::LoadU(d, x + j + N), factor)), to + j);
    }
    for_lanes(cols - j, [&](auto lanes, int64_t i) {
      lanes.store(hn::Mul(lanes.load(x + j + i), factor), to + j + i);
    });
  }
}

void round_pairs_simd(int64_t rows, int64_t cols, const float* x, int64_t ld, bfloat16* to) {
  const DBits d;
  const hn::Repartition<uint16_t, DBits> halves;
  const V zero = hn::Zero(D());
  const auto upper = hn::Set(d, 0xffff0000u);
  for (int64_t first = 0; first < cols; first += kPairPanelColumns) {
    const int64_t columns = HWY_MIN(kPairPanelColumns, cols - first);
    const int64_t filled = (columns + kPairLanes - 1) / kPairLanes * kPairLanes;
    for (int64_t r = 0; r < rows; r += 2) {
      const float* const row = x + r * ld + first;
      const auto store = [&](V low, V high, int64_t j) {
        const auto pairs =
            hn::Or(hn::ShiftRight<16>(rounded_bits(low)), hn::And(rounded_bits(high), upper));
        hn::StoreU(hn::BitCast(halves, pairs), halves, &to[2 * j].bits);
      };
      for_lanes(columns, [&](auto lanes, int64_t j) {
        store(lanes.load(row + j), r + 1 < rows ? lanes.load(row + ld + j) : zero, j);
      });
      for (int64_t j = (columns + lane_count() - 1) / lane_count() * lane_count(); j < filled;
           j += lane_count()) {
        store(zero, zero, j);
      }
      to += 2 * filled;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(exponentials_simd);
HWY_EXPORT(normalizers_simd);
HWY_EXPORT(scale_rows_simd);
HWY_EXPORT(weight_grads_simd);
HWY_EXPORT(row_dots_float);
HWY_EXPORT(row_dots_bfloat16);
HWY_EXPORT(round_rows_simd);
HWY_EXPORT(round_pairs_simd);

void attention_exponentials(const ScoreBlock& block, float* s, const SoftmaxRows& softmax) {
  HWY_DYNAMIC_DISPATCH(exponentials_simd)(block, s, softmax);
}

void attention_normalizers(int64_t rows, const SoftmaxRows& softmax, float* lse) {
  HWY_DYNAMIC_DISPATCH(normalizers_simd)(rows, softmax, lse);
}

void attention_scale_rows(int64_t rows, int64_t cols, const float* factors, float* y, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(scale_rows_simd)(rows, cols, factors, y, ld);
}

void attention_weight_grads(const ScoreBlock& block, float* s, float* dp, const float* lse,
                            const float* delta, const float* m) {
  HWY_DYNAMIC_DISPATCH(weight_grads_simd)(block, s, dp, lse, delta, m);
}

void attention_row_dots(int64_t rows, int64_t cols, const MatrixView<float>& dy,
                        const MatrixView<float>& y, float* delta) {
  HWY_DYNAMIC_DISPATCH(row_dots_float)(rows, cols, dy, y, delta);
}

void attention_row_dots(int64_t rows, int64_t cols, const MatrixView<bfloat16>& dy,
                        const MatrixView<bfloat16>& y, float* delta) {
  HWY_DYNAMIC_DISPATCH(row_dots_bfloat16)(rows, cols, dy, y, delta);
}

void attention_round_rows(int64_t rows, int64_t cols, const float* x, int64_t ld,
                          const float* factors, bfloat16* to, int64_t to_ld) {
  HWY_DYNAMIC_DISPATCH(round_rows_simd)(rows, cols, x, ld, factors, to, to_ld);
}

void attention_round_pairs(int64_t rows, int64_t cols, const float* x, int64_t ld, bfloat16* to) {
  HWY_DYNAMIC_DISPATCH(round_pairs_simd)(rows, cols, x, ld, to);
}

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
