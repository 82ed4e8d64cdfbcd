// Reductions over any set of dims, by strides. The output is contiguous over the kept dims, in
// their order. Sums of float and double are kept in double, a float result is rounded once: so its
// error is at most half a unit in the last place plus count * 2^-53 of the sum of magnitudes.
// Long sums are cut at fixed lengths and the parts added in their order, so that results do not
// depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/strided.h"

namespace chargrad::kernels {

// Which dims of an input are kept and which are reduced.
struct Reduction {
  // `dims` lists the reduced ones, 0 <= dim < sizes.size(), each at most once.
  Reduction(std::span<const int64_t> sizes, std::span<const int64_t> strides,
            std::span<const int64_t> dims);

  // How a gradient of the broadcast shape `sizes` goes back to an input of shape `to`: sums the
  // leading dims that `to` lacks and those where it has size 1.
  static Reduction to_shape(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                            std::span<const int64_t> to);

  int64_t outputs() const { return kept.numel(); }
  int64_t count() const { return reduced.numel(); }  // elements that make one output

  Strided<1> kept;
  Strided<1> reduced;
};

// y = sum(x) / divisor; the mean with divisor = count. An empty sum is 0. X and Y are both float,
// double, bfloat16 or int64_t (which wraps around, and ignores the divisor), or bfloat16 and float.
template <class X, class Y>
void sum(const Reduction& r, const X* x, Y* y, double divisor = 1);

// y = sum((x - mean x)^2) / divisor, the mean in double. float, double.
template <class S>
void variance(const Reduction& r, const S* x, S* y, double divisor);

// The largest, smallest element; NaN if there is one. float, double, int64_t.
// Requires: count > 0, or no outputs.
template <class S>
void amax(const Reduction& r, const S* x, S* y);
template <class S>
void amin(const Reduction& r, const S* x, S* y);

// The largest, smallest element along one dim of n elements with stride `step`, and where it is:
// the first of equal ones, the first NaN if there is one. y may be null. float, double, int64_t.
// Requires: n > 0, or no outputs.
template <class S>
void max_index(const Strided<1>& kept, int64_t n, int64_t step, const S* x, S* y, int64_t* index);
template <class S>
void min_index(const Strided<1>& kept, int64_t n, int64_t step, const S* x, S* y, int64_t* index);

// y[r, c] = x[r, 0] + ... + x[r, c]: one chain of additions in S, from the left. float, double,
// int64_t.
template <class S>
void cumsum(const S* x, S* y, int64_t rows, int64_t cols);

}  // namespace chargrad::kernels
