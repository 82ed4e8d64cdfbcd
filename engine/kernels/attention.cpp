// attention.h: heads and rows to the threads, and which loops run.
#include "engine/kernels/attention.h"

#include <algorithm>
#include <type_traits>

#include "engine/kernels/attention_head.h"
#include "engine/kernels/attention_ref.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/cpu.h"

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

template <class S>
bool runs_fast() {
  return std::is_same_v<S, float> && active_tier() != Tier::kRef;
}

}  // namespace

template <class S>
void attention_forward(const AttentionArgs<S>& args, const HeadsView<S>& y, Wide<S>* lse) {
  if constexpr (std::is_same_v<S, float>) {
    if (runs_fast<S>()) {
      const int64_t groups = std::max<int64_t>(1, (args.T + kForwardRows - 1) / kForwardRows);
      for_pieces(args, args.B * args.H * groups, std::min(args.T, kForwardRows), [&](int64_t i) {
        const int64_t at = i / groups, b = at / args.H, h = at % args.H;
        const int64_t first = i % groups * kForwardRows;
        attention_rows_fast(head_of(args, b, h), first, std::min(args.T, first + kForwardRows),
                            rows_of(y, b, h), lse + at * args.T);
      });
      return;
    }
  }
  for_pieces(args, args.B * args.H, args.T, [&](int64_t at) {
    const int64_t b = at / args.H, h = at % args.H;
    ref::attention_forward(head_of(args, b, h), rows_of(y, b, h), lse + at * args.T);
  });
}

template <class S>
void attention_backward(const AttentionArgs<S>& args, const AttentionResult<S>& result,
                        const AttentionGrads<S>& grads) {
  for_pieces(args, args.B * args.H, args.T, [&](int64_t at) {
    const int64_t b = at / args.H, h = at % args.H;
    const AttentionHead<S> head = head_of(args, b, h);
    const AttentionHeadResult<S> head_result = {
        matrix_of(result.y, b, h), matrix_of(result.dy, b, h), result.lse + at * args.T};
    const AttentionHeadGrads<S> head_grads = {rows_of(grads.dq, b, h), rows_of(grads.dk, b, h),
                                              rows_of(grads.dv, b, h)};
    if constexpr (std::is_same_v<S, float>) {
      if (runs_fast<S>()) {
        attention_backward_fast(head, head_result, head_grads);
        return;
      }
    }
    ref::attention_backward(head, head_result, head_grads);
  });
}

template void attention_forward(const AttentionArgs<float>&, const HeadsView<float>&, float*);
template void attention_forward(const AttentionArgs<double>&, const HeadsView<double>&, double*);
template void attention_backward(const AttentionArgs<float>&, const AttentionResult<float>&,
                                 const AttentionGrads<float>&);
template void attention_backward(const AttentionArgs<double>&, const AttentionResult<double>&,
                                 const AttentionGrads<double>&);

}  // namespace chargrad::kernels
