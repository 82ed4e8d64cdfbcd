// attention.h: heads and rows to the threads, and which loops run.
#include "engine/kernels/attention.h"

#include <algorithm>
#include <type_traits>

#include "engine/kernels/attention_head.h"
#include "engine/kernels/attention_ref.h"
#include "engine/kernels/attention_rows.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/scratch.h"

namespace chargrad::kernels {
namespace {

// Multiplications of one chunk, a few microseconds: smaller pieces are not worth handing to a
// thread.
constexpr int64_t kChunkWork = int64_t{1} << 17;

// Calls f for each of `pieces` pieces of `rows` rows each, some of them per chunk.
template <class S, class F>
void for_pieces(const AttentionArgs<S>& args, int64_t pieces, int64_t rows, const F& f) {
  const int64_t work = std::max<int64_t>(1, rows * args.keys * (args.D + args.E));
  parallel_chunks(pieces, std::max<int64_t>(1, kChunkWork / work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      f(i);
    }
  });
}

// Runs a head's loops in float: what a CPU without products of bfloat16 does.
class Widened {
 public:
  explicit Widened(const AttentionHead<bfloat16>& head)
      : head_{head.T,
              head.keys,
              head.D,
              head.E,
              widen(head.q, head.T, head.D, memory_.q),
              widen(head.k, head.keys, head.D, memory_.k),
              widen(head.v, head.keys, head.E, memory_.v),
              head.mask,
              head.scale,
              head.is_causal,
              head.dropout_p,
              head.key,
              head.first_weight} {}

  void forward(const Rows<bfloat16>& y, float* lse) const {
    const Rows<float> wide = rows_in(memory_.y, head_.T, head_.E);
    for (int64_t row = 0; row < head_.T; row += kForwardRows) {
      attention_rows_fast(head_, row, std::min(head_.T, row + kForwardRows), wide, lse);
    }
    round(wide, head_.T, head_.E, y);
  }

  void backward(const AttentionHeadResult<bfloat16>& result,
                const AttentionHeadGrads<bfloat16>& grads) const {
    const int64_t T = head_.T, keys = head_.keys, D = head_.D, E = head_.E;
    const AttentionHeadResult<float> wide_result = {widen(result.y, T, E, memory_.y),
                                                    widen(result.dy, T, E, memory_.dy), result.lse};
    const AttentionHeadGrads<float> wide = {rows_in(memory_.dq, T, D), rows_in(memory_.dk, keys, D),
                                            rows_in(memory_.dv, keys, E)};
    attention_backward_fast(head_, wide_result, wide);
    round(wide.dq, T, D, grads.dq);
    round(wide.dk, keys, D, grads.dk);
    round(wide.dv, keys, E, grads.dv);
  }

 private:
  struct Memory {
    Scratch q, k, v, y, dy, dq, dk, dv;
  };
  static Memory& memory_of_thread() {
    thread_local Memory memory;
    return memory;
  }

  static Rows<float> rows_in(Scratch& memory, int64_t rows, int64_t cols) {
    return {memory.floats(rows * cols), cols};
  }
  static MatrixView<float> widen(const MatrixView<bfloat16>& m, int64_t rows, int64_t cols,
                                 Scratch& memory) {
    const Rows<float> wide = rows_in(memory, rows, cols);
    for (int64_t i = 0; i < rows; ++i) {
      const bfloat16* const row = m.data + i * m.row_stride;
      for (int64_t j = 0; j < cols; ++j) {
        wide.at(i)[j] = row[j * m.column_stride];
      }
    }
    return {wide.data, cols, 1};
  }
  static void round(const Rows<float>& wide, int64_t rows, int64_t cols, const Rows<bfloat16>& to) {
    attention_round_rows(rows, cols, wide.data, wide.ld, nullptr, to.data, to.ld);
  }

  Memory& memory_ = memory_of_thread();
  AttentionHead<float> head_;
};

// Which loops run.
enum class Loops { kRef, kFast, kWidened };

template <class S>
Loops loops() {
  if (std::is_same_v<S, double> || active_tier() == Tier::kRef) {
    return Loops::kRef;
  }
  return std::is_same_v<S, float> || has_fast_bfloat16() ? Loops::kFast : Loops::kWidened;
}

template <class S>
void forward_head(Loops which, const AttentionHead<S>& head, const Rows<S>& y, Wide<S>* lse) {
  if constexpr (std::is_same_v<S, bfloat16>) {
    if (which == Loops::kWidened) {
      Widened(head).forward(y, lse);
      return;
    }
  }
  ref::attention_forward(head, y, lse);
}

template <class S>
void backward_head(Loops which, const AttentionHead<S>& head, const AttentionHeadResult<S>& result,
                   const AttentionHeadGrads<S>& grads) {
  if constexpr (!std::is_same_v<S, double>) {
    if (which == Loops::kFast) {
      attention_backward_fast(head, result, grads);
      return;
    }
  }
  if constexpr (std::is_same_v<S, bfloat16>) {
    if (which == Loops::kWidened) {
      Widened(head).backward(result, grads);
      return;
    }
  }
  ref::attention_backward(head, result, grads);
}

// Rows of all heads, kForwardRows at a time.
template <class S>
void forward_fast(const AttentionArgs<S>& args, const HeadsView<S>& y, Wide<S>* lse) {
  const int64_t groups = (args.T + kForwardRows - 1) / kForwardRows;
  for_pieces(args, args.B * args.H * groups, std::min(args.T, kForwardRows), [&](int64_t i) {
    const int64_t at = i / groups, b = at / args.H, h = at % args.H;
    const int64_t first = i % groups * kForwardRows;
    attention_rows_fast(head_of(args, b, h), first, std::min(args.T, first + kForwardRows),
                        rows_of(y, b, h), lse + at * args.T);
  });
}

}  // namespace

template <class S>
void attention_forward(const AttentionArgs<S>& args, const HeadsView<S>& y, Wide<S>* lse) {
  const Loops which = loops<S>();
  if constexpr (!std::is_same_v<S, double>) {
    if (which == Loops::kFast) {
      forward_fast(args, y, lse);
      return;
    }
  }
  for_pieces(args, args.B * args.H, args.T, [&](int64_t at) {
    const int64_t b = at / args.H, h = at % args.H;
    forward_head(which, head_of(args, b, h), rows_of(y, b, h), lse + at * args.T);
  });
}

template <class S>
void attention_backward(const AttentionArgs<S>& args, const AttentionResult<S>& result,
                        const AttentionGrads<S>& grads) {
  const Loops which = loops<S>();
  for_pieces(args, args.B * args.H, args.T, [&](int64_t at) {
    const int64_t b = at / args.H, h = at % args.H;
    backward_head<S>(
        which, head_of(args, b, h),
        {matrix_of(result.y, b, h), matrix_of(result.dy, b, h), result.lse + at * args.T},
        {rows_of(grads.dq, b, h), rows_of(grads.dk, b, h), rows_of(grads.dv, b, h)});
  });
}

template void attention_forward(const AttentionArgs<float>&, const HeadsView<float>&, float*);
template void attention_forward(const AttentionArgs<double>&, const HeadsView<double>&, double*);
template void attention_forward(const AttentionArgs<bfloat16>&, const HeadsView<bfloat16>&, float*);
template void attention_backward(const AttentionArgs<float>&, const AttentionResult<float>&,
                                 const AttentionGrads<float>&);
template void attention_backward(const AttentionArgs<double>&, const AttentionResult<double>&,
                                 const AttentionGrads<double>&);
template void attention_backward(const AttentionArgs<bfloat16>&, const AttentionResult<bfloat16>&,
                                 const AttentionGrads<bfloat16>&);

}  // namespace chargrad::kernels
