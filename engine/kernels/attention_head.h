// One head of attention, as attention.cpp hands it down. Internal to attention*.cpp.
#pragma once

#include <cstdint>

#include "engine/kernels/attention.h"
#include "engine/kernels/gemm.h"

namespace chargrad::kernels {

// Row-major; row i starts at data + i * ld.
template <class S>
struct Rows {
  S* data;
  int64_t ld;

  S* at(int64_t i) const { return data + i * ld; }
};

template <class S>
MatrixView<S> from_row(const MatrixView<S>& m, int64_t row) {
  return {m.data + row * m.row_stride, m.row_stride, m.column_stride};
}

// The inputs of one head.
template <class S>
struct AttentionHead {
  int64_t T, keys, D, E;
  MatrixView<S> q, k, v;
  Rows<const Wide<S>> mask;  // data may be null
  Wide<S> scale;
  bool is_causal;
  double dropout_p;
  DropoutKey key;
  int64_t first_weight;  // what dropout counts the weight (0, 0) as

  int64_t seen(int64_t row) const { return is_causal && row < keys ? row + 1 : keys; }
};

template <class S>
struct AttentionHeadResult {
  MatrixView<S> y, dy;
  const Wide<S>* lse;
};

template <class S>
struct AttentionHeadGrads {
  Rows<S> dq, dk, dv;
};

template <class S>
MatrixView<S> matrix_of(const HeadsView<const S>& x, int64_t b, int64_t h) {
  return {x.data + b * x.batch + h * x.head, x.row, x.column};
}

template <class S>
Rows<S> rows_of(const HeadsView<S>& x, int64_t b, int64_t h) {
  return {x.data + b * x.batch + h * x.head, x.row};
}

template <class S>
AttentionHead<S> head_of(const AttentionArgs<S>& args, int64_t b, int64_t h) {
  AttentionHead<S> head = {args.T,
                           args.keys,
                           args.D,
                           args.E,
                           matrix_of(args.q, b, h),
                           matrix_of(args.k, b, h),
                           matrix_of(args.v, b, h),
                           {nullptr, 0},
                           args.scale,
                           args.is_causal,
                           args.dropout_p,
                           args.key,
                           (b * args.H + h) * args.T * args.keys};
  if (args.mask.data != nullptr) {
    head.mask = rows_of(args.mask, b, h);
  }
  return head;
}

// By register tiles, S = float or bfloat16: rows [first, last) of y and lse, each given from row 0
// on; `first` is a multiple of kForwardRows and there are at most as many rows.
// Requires: the active tier is not ref, and for bfloat16 it is one that multiplies it.
inline constexpr int64_t kForwardRows = 256;
template <class S>
void attention_rows_fast(const AttentionHead<S>& head, int64_t first, int64_t last,
                         const Rows<S>& y, float* lse);
template <class S>
void attention_backward_fast(const AttentionHead<S>& head, const AttentionHeadResult<S>& result,
                             const AttentionHeadGrads<S>& grads);

}  // namespace chargrad::kernels
