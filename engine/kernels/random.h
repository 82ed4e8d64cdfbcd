// Fills of plain arrays with random numbers, in the order and to the last bit as PyTorch's CPU
// generator makes them (2.7 and later; for normals on x86 CPUs with AVX2). All of them draw from
// one stream, serially; the arithmetic on float is vectorised. S is float or double.
#pragma once

#include <cstdint>

#include "engine/kernels/mt19937.h"

namespace chargrad::kernels {

// y_i = fma(u_i, to - from, from), u_i uniform in [0, 1). One draw (24 bits) for a float, two (53
// bits) for a double. The bounds are rounded to S first.
template <class S>
void uniform(RandomStream& stream, S* y, int64_t n, double from, double to);

// Normals. From kNormalBlock elements on: n uniforms, pairs eight apart in blocks of 16 by
// Box-Muller in S; if n is not a multiple of 16, the last 16 elements are drawn anew. Fewer
// elements are drawn as by normal_serial.
inline constexpr int64_t kNormalBlock = 16;
template <class S>
void normal(RandomStream& stream, S* y, int64_t n, double mean, double std);

// Normals by Box-Muller in double, element by element; the second value of a pair is kept in the
// stream for the next call. What PyTorch does for tensors that are not contiguous.
template <class S>
void normal_serial(RandomStream& stream, S* y, int64_t n, double mean, double std);

// y_i = low + draw mod range: one 32-bit draw, or a 64-bit one where range >= 2^28.
// Requires: range > 0 and low + range - 1 fits into int64.
void integers(RandomStream& stream, int64_t* y, int64_t n, int64_t low, uint64_t range);

// A random order of 0 .. n-1: element i is exchanged with one of those from i on, chosen by one
// 32-bit draw. Above 200 million elements, inside out: element i goes to one of the places up to
// i, chosen by a 64-bit draw, and what was there moves to i.
void permutation(RandomStream& stream, int64_t* y, int64_t n);
void permutation_inside_out(RandomStream& stream, int64_t* y, int64_t n);

// y_i = 1 with probability p, else 0: a 53-bit uniform (two draws) below p.
template <class S>
void bernoulli(RandomStream& stream, S* y, int64_t n, double p);
// y_i = 1 with probability p_i: a uniform of S below p_i.
template <class S>
void bernoulli(RandomStream& stream, const S* p, S* y, int64_t n);

// y_i = -log1p(-u_i) / lambda with u_i of 53 bits (two draws).
template <class S>
void exponential(RandomStream& stream, S* y, int64_t n, double lambda);

// Draws `samples` column indices for each row of p (rows, cols); the weights need not sum to one.
//   p (rows, cols) -> y (rows, samples)
// Without replacement, or for one sample: the largest p / e with e exponential (2 * cols draws a
// row); equal ones in column order. With replacement: cumulative sums in S, one 53-bit uniform per
// sample. A column of weight zero is not drawn before all others are.
// Requires: finite weights >= 0 with a positive sum in each row; samples <= cols, and not more
// than the positive weights of any row, without replacement.
template <class S>
void multinomial(RandomStream& stream, const S* p, int64_t* y, int64_t rows, int64_t cols,
                 int64_t samples, bool replacement);

// The arithmetic of uniform and normal on numbers already drawn, in place.
//   scale_shift: x_i = fma(x_i, scale, shift).
//   normal_blocks: 16 uniforms to 16 normals, block by block.
template <class S>
void scale_shift(S* x, int64_t n, S scale, S shift);
template <class S>
void normal_blocks(S* x, int64_t blocks, S mean, S std);

}  // namespace chargrad::kernels
