// attention.h: the order of the products and of what happens between them.
#include "engine/kernels/attention.h"

#include <algorithm>
#include <vector>

#include "engine/kernels/attention_rows.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/gemm.h"

namespace chargrad::kernels {
namespace {

// Rows whose scores are made at once: 64 rows of 256 floats are 64 KiB, and the blocks above the
// diagonal that a causal head of 64 rows does not skip cost it nothing.
constexpr int64_t kRowBlock = 64;

template <class S>
MatrixView<S> matrix(const HeadsView<const S>& x, int64_t b, int64_t h) {
  return {x.data + b * x.batch + h * x.head, x.row, x.column};
}

template <class S>
MatrixView<S> from_row(const MatrixView<S>& m, int64_t row) {
  return {m.data + row * m.row_stride, m.row_stride, m.column_stride};
}

// Multiplications of one chunk, a few microseconds: smaller pieces are not worth handing to a
// thread.
constexpr int64_t kChunkWork = int64_t{1} << 17;

// How many pieces of `rows` rows each make a chunk.
template <class S>
int64_t pieces_per_chunk(const AttentionArgs<S>& args, int64_t rows) {
  const int64_t work = rows * args.keys * (args.D + args.E);
  return std::max<int64_t>(1, kChunkWork / std::max<int64_t>(1, work));
}

// Working memory of one thread; grows, and is kept.
template <class S>
S* scratch(int64_t count) {
  static thread_local std::vector<S> memory;
  if (static_cast<int64_t>(memory.size()) < count) {
    memory.resize(static_cast<size_t>(count));
  }
  return memory.data();
}

// One head, and its rows [row, row + rows).
template <class S>
struct Block {
  const AttentionArgs<S>& args;
  int64_t b, h, row, rows;

  // Columns that any of the rows sees, up to the border of the square block on the diagonal:
  // backward reads whole blocks of columns.
  int64_t cols() const { return args.is_causal ? std::min(args.keys, row + kRowBlock) : args.keys; }
  ScoreRows<S> score_rows(int64_t ld) const {
    ScoreRows<S> block{rows, cols(), ld, row, args.is_causal, args.scale, nullptr, args.mask.row};
    if (args.mask.data != nullptr) {
      block.mask = matrix(args.mask, b, h).data + row * args.mask.row;
    }
    return block;
  }
  // s (rows, cols) = q k^T
  void scores(S* s, int64_t ld) const {
    gemm_serial<S>(rows, cols(), args.D, from_row(matrix(args.q, b, h), row),
                   transposed(matrix(args.k, b, h)), s, ld);
  }
  // Applies the dropout factors of these weights to x, in place.
  void drop(S* x, int64_t ld) const {
    for (int64_t r = 0; args.dropout_p > 0 && r < rows; ++r) {
      const int64_t at = ((b * args.H + h) * args.T + row + r) * args.keys;
      dropout<S>(x + r * ld, x + r * ld, cols(), args.dropout_p, args.key, at);
    }
  }
};

template <class S>
void forward_block(const Block<S>& block, S* y, S* lse) {
  const int64_t cols = block.cols();
  S* p = scratch<S>(block.rows * cols);
  block.scores(p, cols);
  attention_weights(block.score_rows(cols), p, lse);
  block.drop(p, cols);
  gemm_serial<S>(block.rows, block.args.E, cols, {p, cols, 1},
                 matrix(block.args.v, block.b, block.h), y, block.args.E);
}

// Gradients of one head; pointers to its matrices.
template <class S>
struct HeadGrads {
  const S* y;
  const S* lse;
  const S* dy;
  S* dq;
  S* dk;
  S* dv;
};

// Fills these rows of the head's p (dropped weights), ds (gradient of the scores) and dq; p and ds
// point at the first of the rows.
template <class S>
void backward_rows(const Block<S>& block, const HeadGrads<S>& head, S* p, S* ds) {
  const AttentionArgs<S>& args = block.args;
  const int64_t cols = block.cols(), ld = args.keys, E = args.E;
  const S* dy = head.dy + block.row * E;
  const S* y = head.y + block.row * E;
  S delta[kRowBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) {
      sum += static_cast<double>(dy[r * E + e]) * static_cast<double>(y[r * E + e]);
    }
    delta[r] = static_cast<S>(sum);
  }
  block.scores(p, ld);
  attention_weights_again(block.score_rows(ld), p, head.lse + block.row);
  gemm_serial<S>(block.rows, cols, E, {dy, E, 1}, transposed(matrix(args.v, block.b, block.h)), ds,
                 ld);
  block.drop(ds, ld);
  attention_score_grad(block.score_rows(ld), p, ds, delta);
  block.drop(p, ld);
  gemm_serial<S>(block.rows, args.D, cols, {ds, ld, 1}, matrix(args.k, block.b, block.h),
                 head.dq + block.row * args.D, args.D);
}

template <class S>
void backward_head(const AttentionArgs<S>& args, int64_t b, int64_t h, const HeadGrads<S>& head) {
  const int64_t T = args.T, ld = args.keys;
  S* p = scratch<S>(2 * T * ld);
  S* ds = p + T * ld;
  for (int64_t row = 0; row < T; row += kRowBlock) {
    backward_rows(Block<S>{args, b, h, row, std::min(kRowBlock, T - row)}, head, p + row * ld,
                  ds + row * ld);
  }
  // Columns [c, c + n) are seen by the rows from c on, or by all.
  for (int64_t c = 0; c < ld; c += kRowBlock) {
    const int64_t n = std::min(kRowBlock, ld - c);
    const int64_t first = args.is_causal ? std::min(c, T) : 0;
    gemm_serial<S>(n, args.E, T - first, transposed(MatrixView<S>{p + first * ld + c, ld, 1}),
                   {head.dy + first * args.E, args.E, 1}, head.dv + c * args.E, args.E);
    gemm_serial<S>(n, args.D, T - first, transposed(MatrixView<S>{ds + first * ld + c, ld, 1}),
                   from_row(matrix(args.q, b, h), first), head.dk + c * args.D, args.D);
  }
}

}  // namespace

template <class S>
void attention_forward(const AttentionArgs<S>& args, S* y, S* lse) {
  const int64_t blocks = (args.T + kRowBlock - 1) / kRowBlock;
  const auto one = [&](int64_t i) {
    const int64_t head = i / blocks, row = i % blocks * kRowBlock;
    const int64_t at = head * args.T + row;
    forward_block(
        Block<S>{args, head / args.H, head % args.H, row, std::min(kRowBlock, args.T - row)},
        y + at * args.E, lse + at);
  };
  const int64_t chunk = pieces_per_chunk(args, std::min(kRowBlock, args.T));
  parallel_chunks(args.B * args.H * blocks, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      one(i);
    }
  });
}

template <class S>
void attention_backward(const AttentionArgs<S>& args, const S* y, const S* lse, const S* dy, S* dq,
                        S* dk, S* dv) {
  const auto one = [&](int64_t head) {
    const int64_t at = head * args.T;
    backward_head(args, head / args.H, head % args.H,
                  HeadGrads<S>{y + at * args.E, lse + at, dy + at * args.E, dq + at * args.D,
                               dk + head * args.keys * args.D, dv + head * args.keys * args.E});
  };
  const int64_t chunk = pieces_per_chunk(args, args.T);
  parallel_chunks(args.B * args.H, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      one(head);
    }
  });
}

template void attention_forward<float>(const AttentionArgs<float>&, float*, float*);
template void attention_forward<double>(const AttentionArgs<double>&, double*, double*);
template void attention_backward<float>(const AttentionArgs<float>&, const float*, const float*,
                                        const float*, float*, float*, float*);
template void attention_backward<double>(const AttentionArgs<double>&, const double*, const double*,
                                         const double*, double*, double*, double*);

}  // namespace chargrad::kernels
