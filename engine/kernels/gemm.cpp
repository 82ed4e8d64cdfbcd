// Cuts a product into blocks, packs what the register tile reads, and hands them to the threads.
#include "engine/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_ref.h"
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/scratch.h"
#include "engine/threads.h"

namespace chargrad::kernels {

namespace {

// Rows of one chunk, about. With kDepth they make a block of A of 147 kB, for the second cache.
constexpr int64_t kChunkRows = 96;
// k of one run of the register tile: a panel of 64 columns takes 98 kB, for the second cache too.
constexpr int64_t kDepth = 384;
// Up to this many rows reading B bounds the speed, and each panel is packed right before its use.
constexpr int64_t kFewRows = 24;
// k of one panel that is packed so: 32 kB.
constexpr int64_t kFewRowsDepth = 128;
static_assert(kFewRowsDepth <= kStretchK);
// Floats of a packed operand (8 MB): larger ones are packed and used in parts.
constexpr int64_t kPackedSize = int64_t{1} << 21;
// k of one part when A must be packed as well; both parts then stay in the last cache.
constexpr int64_t kPackedDepth = 256;
static_assert(kPackedDepth % kStretchK == 0);
// Rows of k that one chunk packs.
constexpr int64_t kPackChunk = 64;
// Chunks that are enough to keep any number of threads busy.
constexpr int64_t kEnoughChunks = 32;
// Products (M N K) below which waking a thread costs more than it brings; reading a B of one row
// counts as four rows of work.
constexpr int64_t kParallelWork = int64_t{1} << 17;

constexpr int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}
constexpr int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

enum class Run { kParallel, kSerial };

template <class F>
void for_chunks(Run run, int64_t chunks, const F& f) {
  if (run == Run::kParallel) {
    parallel_for(chunks, f);
    return;
  }
  for (int64_t i = 0; i < chunks; ++i) {
    f(i);
  }
}

template <class S>
struct Product {
  int64_t M;
  int64_t N;
  int64_t K;
  MatrixView<S> a;
  MatrixView<S> b;
  S* c;
  int64_t ldc;
  const S* bias;

  // The product for C's rows [i, i + rows) and columns [j, j + columns).
  Product part(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    return {rows,          columns,         K,   from(a, i, 0),
            from(b, 0, j), c + i * ldc + j, ldc, bias == nullptr ? nullptr : bias + j};
  }

  static MatrixView<S> from(const MatrixView<S>& m, int64_t i, int64_t j) {
    return {m.data + i * m.row_stride + j * m.column_stride, m.row_stride, m.column_stride};
  }
};

// How the sums over [k, ...) begin. A long K is cut at fixed places; each stretch has its own
// chain.
SumMode mode_at(int64_t K, int64_t k) {
  if (k == 0) {
    return SumMode::kBegin;
  }
  return K > kLongK && k % kStretchK == 0 ? SumMode::kAdd : SumMode::kContinue;
}

// Where a run of the register tile from k ends: after `depth`, but a stretch is always one run.
int64_t run_end(int64_t K, int64_t k, int64_t depth) {
  return std::min(K, k + (K > kLongK ? kStretchK : depth));
}

// The block of C that `p` describes, over k in [k, k + depth), all but B's place.
PanelArgs panel_args(const Product<float>& p, int64_t k, int64_t depth) {
  PanelArgs args = {};
  args.rows = p.M;
  args.columns = p.N;
  args.depth = depth;
  args.a = p.a.data + k * p.a.column_stride;
  args.a_row_stride = p.a.row_stride;
  args.a_k_stride = p.a.column_stride;
  args.c = p.c;
  args.ldc = p.ldc;
  args.bias = p.bias;
  args.mode = mode_at(p.K, k);
  return args;
}

// Few rows: a chunk is one panel of B, read in place where its rows are whole vectors.
void multiply_few_rows(const TileKernels& t, const Product<float>& whole, Run run) {
  for_chunks(run, ceil_div(whole.N, t.panel_columns), [&](int64_t panel) {
    const int64_t j = panel * t.panel_columns;
    const int64_t columns = std::min(t.panel_columns, whole.N - j);
    const Product<float> p = whole.part(0, whole.M, j, columns);
    const bool in_place = p.b.column_stride == 1 && columns % t.lanes == 0;
    thread_local Scratch scratch;
    float* const packed = in_place ? nullptr : scratch.floats(kStretchK * t.panel_columns);
    for (int64_t k = 0, end = 0; k < p.K; k = end) {
      end = run_end(p.K, k, in_place ? p.K : kFewRowsDepth);
      PanelArgs args = panel_args(p, k, end - k);
      const MatrixView<float> b = p.from(p.b, k, 0);
      if (in_place) {
        args.b = b.data;
        args.ldb = b.row_stride;
      } else {
        t.pack(b, {packed, end - k, columns, t.panel_columns}, 0, end - k, 0, 1);
        args.b = packed;
        args.ldb = round_up(columns, t.lanes);
      }
      t.multiply_panel(args);
    }
  });
}

// Packs all of `m`, in chunks that read memory in one stream each.
void pack_all(const TileKernels& t, const MatrixView<float>& m, const Panels& to, Run run) {
  const int64_t panels = ceil_div(to.columns, to.width);
  if (m.column_stride != 1) {
    for_chunks(run, panels, [&](int64_t p) { t.pack(m, to, 0, to.depth, p, p + 1); });
    return;
  }
  for_chunks(run, ceil_div(to.depth, kPackChunk), [&](int64_t chunk) {
    const int64_t k = chunk * kPackChunk;
    t.pack(m, to, k, std::min(k + kPackChunk, to.depth), 0, panels);
  });
}

// Many rows: B is packed once for all of them, and so is A where its rows are not contiguous (as
// in a weight gradient).
void multiply_many_rows(const TileKernels& t, const Product<float>& whole, Run run) {
  thread_local Scratch scratch_a, scratch_b;
  const bool pack_a = whole.a.column_stride != 1;
  const int64_t packed_n = round_up(whole.N, t.lanes);
  const int64_t max_depth = std::max(kPackedSize / packed_n / kStretchK * kStretchK, kPackedDepth);
  const int64_t depth = std::min(whole.K, pack_a ? kPackedDepth : max_depth);
  float* const packed_a =
      pack_a ? scratch_a.floats(round_up(whole.M, kChunkRows) * depth) : nullptr;
  float* const packed_b = scratch_b.floats(packed_n * depth);

  const int64_t panels = ceil_div(whole.N, t.panel_columns);
  const int64_t row_chunks = ceil_div(whole.M, kChunkRows);
  const int64_t column_chunks = std::min(panels, ceil_div(kEnoughChunks, row_chunks));
  for (int64_t k0 = 0; k0 < whole.K; k0 += depth) {
    const int64_t k1 = std::min(whole.K, k0 + depth);
    if (pack_a) {
      pack_all(t, transposed(whole.from(whole.a, 0, k0)), {packed_a, k1 - k0, whole.M, kChunkRows},
               run);
    }
    pack_all(t, whole.from(whole.b, k0, 0), {packed_b, k1 - k0, whole.N, t.panel_columns}, run);

    for_chunks(run, row_chunks * column_chunks, [&](int64_t chunk) {
      const int64_t i = chunk / column_chunks * kChunkRows;
      const int64_t rows = std::min(kChunkRows, whole.M - i);
      const int64_t first = chunk % column_chunks * panels / column_chunks;
      const int64_t last = (chunk % column_chunks + 1) * panels / column_chunks;
      for (int64_t k = k0, end = 0; k < k1; k = end) {
        end = std::min(k1, run_end(whole.K, k, kDepth));
        for (int64_t panel = first; panel < last; ++panel) {
          const int64_t j = panel * t.panel_columns;
          const int64_t columns = std::min(t.panel_columns, whole.N - j);
          PanelArgs args = panel_args(whole.part(i, rows, j, columns), k, end - k);
          args.ldb = round_up(columns, t.lanes);
          args.b = packed_b + j * (k1 - k0) + (k - k0) * args.ldb;
          if (pack_a) {
            args.a_row_stride = 1;
            args.a_k_stride = round_up(rows, t.lanes);
            args.a = packed_a + i * (k1 - k0) + (k - k0) * args.a_k_stride;
          }
          t.multiply_panel(args);
        }
      }
    });
  }
}

void multiply_fast(const Product<float>& p, Run run) {
  const TileKernels& t = tile_kernels();
  if (p.M <= kFewRows || (run == Run::kSerial && p.M <= kChunkRows)) {
    multiply_few_rows(t, p, run);
    return;
  }
  // Operands whose packed form would be too large are cut.
  constexpr int64_t kMost = kPackedSize / kPackedDepth;
  const int64_t most_rows = p.a.column_stride == 1 ? p.M : kMost;
  for (int64_t j = 0; j < p.N; j += kMost) {
    for (int64_t i = 0; i < p.M; i += most_rows) {
      multiply_many_rows(t, p.part(i, std::min(most_rows, p.M - i), j, std::min(kMost, p.N - j)),
                         run);
    }
  }
}

template <class S>
void fill_rows(const Product<S>& p) {
  for (int64_t i = 0; i < p.M; ++i) {
    for (int64_t j = 0; j < p.N; ++j) {
      p.c[i * p.ldc + j] = p.bias == nullptr ? S{} : p.bias[j];
    }
  }
}

template <class S>
void multiply(const Product<S>& p, Run run) {
  if (p.M == 0 || p.N == 0) {
    return;
  }
  if (p.K == 0) {
    fill_rows(p);
    return;
  }
  if (std::max<int64_t>(p.M, 4) * p.N * p.K < kParallelWork) {
    run = Run::kSerial;
  }
  if constexpr (std::is_same_v<S, float>) {
    if (active_tier() != Tier::kRef) {
      multiply_fast(p, run);
      return;
    }
  }
  const int64_t rows = ceil_div(kParallelWork, p.N * p.K);
  for_chunks(run, ceil_div(p.M, rows), [&](int64_t chunk) {
    const Product<S> q = p.part(chunk * rows, std::min(rows, p.M - chunk * rows), 0, p.N);
    ref::gemm(q.M, q.N, q.K, q.a, q.b, q.c, q.ldc, q.bias);
  });
}

}  // namespace

template <class S>
void gemm(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b, S* c,
          int64_t ldc, const S* bias) {
  multiply<S>({M, N, K, a, b, c, ldc, bias}, Run::kParallel);
}

template <class S>
void gemm_serial(int64_t M, int64_t N, int64_t K, const MatrixView<S>& a, const MatrixView<S>& b,
                 S* c, int64_t ldc, const S* bias) {
  multiply<S>({M, N, K, a, b, c, ldc, bias}, Run::kSerial);
}

template <class S>
void gemm_batched(int64_t batch, const BatchStrides& strides, int64_t M, int64_t N, int64_t K,
                  const MatrixView<S>& a, const MatrixView<S>& b, S* c, int64_t ldc,
                  const S* bias) {
  if (strides.b == 0 && strides.a == M * a.row_stride && strides.c == M * ldc) {
    gemm(batch * M, N, K, a, b, c, ldc, bias);  // One tall product.
    return;
  }
  const auto one = [&](int64_t i, Run run) {
    multiply<S>({M,
                 N,
                 K,
                 {a.data + i * strides.a, a.row_stride, a.column_stride},
                 {b.data + i * strides.b, b.row_stride, b.column_stride},
                 c + i * strides.c,
                 ldc,
                 bias},
                run);
  };
  // Many products: threads take whole ones, several at a time if they are small. Few: each is cut.
  const int64_t work = std::max<int64_t>(1, M * N * K);
  if (batch < kEnoughChunks && work > kParallelWork) {
    for (int64_t i = 0; i < batch; ++i) {
      one(i, Run::kParallel);
    }
    return;
  }
  const int64_t size = ceil_div(kParallelWork, work);
  parallel_for(ceil_div(batch, size), [&](int64_t chunk) {
    for (int64_t i = chunk * size; i < std::min(batch, (chunk + 1) * size); ++i) {
      one(i, Run::kSerial);
    }
  });
}

template void gemm(int64_t, int64_t, int64_t, const MatrixView<float>&, const MatrixView<float>&,
                   float*, int64_t, const float*);
template void gemm(int64_t, int64_t, int64_t, const MatrixView<double>&, const MatrixView<double>&,
                   double*, int64_t, const double*);
template void gemm_serial(int64_t, int64_t, int64_t, const MatrixView<float>&,
                          const MatrixView<float>&, float*, int64_t, const float*);
template void gemm_serial(int64_t, int64_t, int64_t, const MatrixView<double>&,
                          const MatrixView<double>&, double*, int64_t, const double*);
template void gemm_batched(int64_t, const BatchStrides&, int64_t, int64_t, int64_t,
                           const MatrixView<float>&, const MatrixView<float>&, float*, int64_t,
                           const float*);
template void gemm_batched(int64_t, const BatchStrides&, int64_t, int64_t, int64_t,
                           const MatrixView<double>&, const MatrixView<double>&, double*, int64_t,
                           const double*);

}  // namespace chargrad::kernels
