// Picking elements and rows by index, and the gradients of that; triangles of matrices.
// Indices are trusted: the caller has checked them with first_outside. Each element of a gradient
// sums its parts in the order of the index, whatever the number of threads.
#pragma once

#include <cstdint>

#include "engine/kernels/strided.h"

namespace chargrad::kernels {

// The position of the first index outside [0, n), or -1.
int64_t first_outside(const int64_t* index, int64_t count, int64_t n);

// Shape of a selection: x is [outer, n, inner] and contiguous, `count` of its n are picked.
struct Selection {
  int64_t outer, n, inner, count;
};

// y[o, i, :] = x[o, index[i], :]. An embedding is one with outer = 1: x the table of n rows.
// S is any of the five element types.
template <class S>
void index_select(const Selection& s, const int64_t* index, const S* x, S* y);
// dx[o, j, :] = the sum of dy[o, i, :] over the i with index[i] = j, kept in double and rounded
// once. float, double.
template <class S>
void index_select_backward(const Selection& s, const int64_t* index, const S* dy, S* dx);

// y[p] = x[.., index[p], ..] along one dim of x whose stride is `step`. The operands of `space`
// are y and index (contiguous), and x with stride 0 in that dim. Any of the five.
template <class S>
void gather(const Strided<3>& space, int64_t step, S* y, const int64_t* index, const S* x);
// dx[.., index[p], ..] += dy[p]; the operands of `space` are dy, index and dx with stride 0 in the
// gathered dim. `slices` is how often the outermost dims, up to the gathered one, may be cut in
// order to run in parallel: the product of their sizes.
// Requires: dx is zero. float, double.
template <class S>
void gather_backward(const Strided<3>& space, int64_t step, int64_t slices, const S* dy,
                     const int64_t* index, S* dx);

// y[b, i, j] = x[b, i, j] where j - i <= diagonal, else 0 (tril); or where j - i >= diagonal
// (triu). Contiguous; any of the five.
template <class S>
void tril(const S* x, S* y, int64_t batch, int64_t rows, int64_t cols, int64_t diagonal);
template <class S>
void triu(const S* x, S* y, int64_t batch, int64_t rows, int64_t cols, int64_t diagonal);

}  // namespace chargrad::kernels
