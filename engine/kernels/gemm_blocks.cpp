// Cuts a float32 product into blocks, packs what the register tile reads, and hands the blocks to
// the threads.
//
// Measured 2026-11-29 on AMD EPYC (Zen 4, family 25 model 17), one thread, processor time, best of
// many on a busy machine; the peak of the FMA unit in the same run was 116-118 GF/s:
//   768 rows, widths 65 to 512 (a small GPT): 103-115 GF/s forward, 113-116 input gradient,
//     101-110 weight gradient;
//   16384 rows, widths 384 to 1536: 105-109 forward, 106-110 input gradient, 93-98 weight gradient,
//     which reads both operands from memory (12 GB/s here) once;
//   a head of 65 columns: 89-103, by multiply_few_columns; as a panel of one vector, 81-93;
//   one row: 25-30 GB/s of B that lies in columns, 100 GB/s of B in rows (both in cache).
// What lost: packing A in tiles of 6 rows instead of plain rows of kChunkRows (87 against 98 in
// weight gradients), packing panel by panel instead of in one stream over memory (9 GB/s against
// 12), prefetching the next part's operands during a part (no difference).
// 2026-11-30, the same machine, two threads: weight gradients of 768 rows read both operands in
// place, 218-225 GF/s; packed, they came to 130-194, because what one thread packs and the other
// reads goes from cache to cache, and back to be written anew. For 16384 rows, where packing also
// makes one stream of the reading of memory, in place is up to 7 % slower.
#include <algorithm>

#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/scratch.h"

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
constexpr int64_t kPackedDepth = 512;
static_assert(kPackedDepth % kStretchK == 0);
// Rows of k that one chunk packs.
constexpr int64_t kPackChunk = 32;
// Rows of the register tile.
constexpr int64_t kTileRows = 6;
// What is read where it lies: a K up to so long, a B for up to so many rows of C, rows of k up to
// so far apart that they do not crowd the sets of the second cache. On AVX2 the tile takes two
// lines in 6 cycles instead of five in 24, and rows that crowd the first cache's sets are too slow.
constexpr int64_t kInPlaceRows = 768;
constexpr int64_t kInPlaceDepth = 1024;
constexpr int64_t kInPlaceStride = 1536;
constexpr int64_t kInPlaceStrideNarrow = 256;

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

// A matrix to pack, in chunks that read memory in one stream each.
struct Packing {
  MatrixView<float> m;
  Panels to;

  int64_t panels() const { return ceil_div(to.columns, to.width); }
  int64_t chunks() const {
    return to.data == nullptr     ? 0
           : m.column_stride == 1 ? ceil_div(to.depth, kPackChunk)
                                  : panels();
  }
  void run(int64_t chunk) const {
    if (m.column_stride == 1) {
      const int64_t k = chunk * kPackChunk;
      tile_kernels().pack(m, to, k, std::min(k + kPackChunk, to.depth), 0, panels());
    } else {
      tile_kernels().pack(m, to, 0, to.depth, chunk, chunk + 1);
    }
  }
};

// A few columns, over k in [k0, k1), the other way round: the vectors hold rows, which keeps all
// of their lanes busy. `packed_a` is null or A^T from k0, its rows lda apart.
void multiply_few_columns(const TileKernels& t, const Product<float>& p, int64_t k0, int64_t k1,
                          const float* packed_a, int64_t lda) {
  thread_local Scratch scratch_sums, scratch_panel;
  float* const sums = scratch_sums.floats(p.N * p.M);  // C^T: (N, M)
  for (int64_t j = 0; j < p.N; ++j) {
    for (int64_t i = 0; i < p.M; ++i) {
      const float begin = p.bias == nullptr ? 0.0f : p.bias[j];
      sums[j * p.M + i] = k0 == 0 ? begin : p.c[i * p.ldc + j];
    }
  }
  float* const panel = scratch_panel.floats(kStretchK * t.panel_columns);
  for (int64_t i = 0; i < p.M; i += t.panel_columns) {
    PanelArgs args = {};
    args.rows = p.N;
    args.columns = std::min(t.panel_columns, p.M - i);
    args.a_row_stride = p.b.column_stride;
    args.a_k_stride = p.b.row_stride;
    args.c = sums + i;
    args.ldc = p.M;
    for (int64_t k = k0, end = 0; k < k1; k = end) {
      end = std::min(k1, run_end(p.K, k, kFewRowsDepth));
      args.depth = end - k;
      args.a = p.b.data + k * p.b.row_stride;
      args.mode = k == 0 ? SumMode::kContinue : mode_at(p.K, k);
      if (packed_a != nullptr) {
        args.b = packed_a + (k - k0) * lda + i;
        args.ldb = lda;
      } else {
        t.pack(transposed(p.from(p.a, i, k)), {panel, end - k, args.columns, t.panel_columns}, 0,
               end - k, 0, 1);
        args.b = panel;
        args.ldb = round_up(args.columns, t.lanes);
      }
      t.multiply_panel(args);
    }
  }
  for (int64_t j = 0; j < p.N; ++j) {
    for (int64_t i = 0; i < p.M; ++i) {
      p.c[i * p.ldc + j] = sums[j * p.M + i];
    }
  }
}

// The operands of a part of K in packed form.
struct Packed {
  int64_t k0;
  int64_t k1;
  const float* a;  // Null where A is read in place.
  const float* b;  // Null where B is.
};

// Rows [i, i + rows) and panels [first, last) of C, over the part of K that is packed.
void multiply_block(const TileKernels& t, const Product<float>& whole, const Packed& packed,
                    int64_t i, int64_t rows, int64_t first, int64_t last) {
  const int64_t depth = packed.k1 - packed.k0;
  const int64_t lda = round_up(rows, t.lanes);
  const float* const packed_a = packed.a == nullptr ? nullptr : packed.a + i * depth;
  const int64_t tail = whole.N - (last - 1) * t.panel_columns;
  const bool few_last = tail * 4 <= t.lanes && whole.packed_b == nullptr;
  for (int64_t k = packed.k0, end = 0; k < packed.k1; k = end) {
    end = std::min(packed.k1, run_end(whole.K, k, kDepth));
    for (int64_t panel = first; panel < last - (few_last ? 1 : 0); ++panel) {
      const int64_t j = panel * t.panel_columns;
      const int64_t columns = std::min(t.panel_columns, whole.N - j);
      PanelArgs args = panel_args(whole.part(i, rows, j, columns), k, end - k);
      if (packed.b == nullptr) {
        args.ldb = whole.b.row_stride;
        args.b = whole.b.data + k * args.ldb + j;
      } else {
        args.ldb = round_up(columns, t.lanes);
        args.b = packed.b + j * depth + (k - packed.k0) * args.ldb;
      }
      if (packed_a != nullptr) {
        args.a_row_stride = 1;
        args.a_k_stride = lda;
        args.a = packed_a + (k - packed.k0) * lda;
      }
      t.multiply_panel(args);
    }
  }
  if (few_last) {
    multiply_few_columns(t, whole.part(i, rows, whole.N - tail, tail), packed.k0, packed.k1,
                         packed_a, lda);
  }
}

// All of C, over the part of K that is packed. A chunk is some rows and some panels.
void multiply_blocks(const TileKernels& t, const Product<float>& whole, const Packed& packed,
                     Run run) {
  const int64_t panels = ceil_div(whole.N, t.panel_columns);
  const int64_t row_chunks = ceil_div(whole.M, kChunkRows);
  const int64_t column_chunks = std::min(panels, ceil_div(kEnoughChunks, row_chunks));
  const bool by_columns = whole.a.column_stride != 1 && whole.N > whole.M;
  // Rows of a chunk: a panel of A where it is packed, else of equal numbers of tiles.
  const int64_t rows =
      packed.a != nullptr ? kChunkRows : round_up(ceil_div(whole.M, row_chunks), kTileRows);
  for_chunks(run, ceil_div(whole.M, rows) * column_chunks, [&](int64_t chunk) {
    const auto [row_chunk, column_chunk] =
        place_in_grid(chunk, ceil_div(whole.M, rows), column_chunks, by_columns);
    const int64_t i = row_chunk * rows;
    multiply_block(t, whole, packed, i, std::min(rows, whole.M - i),
                   column_chunk * panels / column_chunks,
                   (column_chunk + 1) * panels / column_chunks);
  });
}

// Whether the register tile takes the operand as it lies: A by rows, or k by k of rows close to one
// another; B in rows of whole vectors for so few rows of C that packing would not pay.
int64_t most_stride_in_place(const TileKernels& t) {
  return t.lanes < 16 ? kInPlaceStrideNarrow : kInPlaceStride;
}
bool reads_a_in_place(const TileKernels& t, const Product<float>& p) {
  return p.a.column_stride == 1 || (p.K <= kInPlaceDepth && p.a.row_stride == 1 &&
                                    p.a.column_stride <= most_stride_in_place(t));
}
bool reads_b_in_place(const TileKernels& t, const Product<float>& p) {
  return p.K <= kInPlaceDepth && p.M <= kInPlaceRows && p.b.column_stride == 1 &&
         p.b.row_stride <= most_stride_in_place(t) && p.N % t.lanes == 0;
}

// k that is used before more is packed.
int64_t part_depth(const Product<float>& p, bool pack_a, bool pack_b, int64_t packed_n) {
  if (!pack_a && !pack_b) {
    return p.K;
  }
  const int64_t most =
      pack_a ? kPackedDepth
             : std::max(kPackedSize / packed_n / kPackedDepth * kPackedDepth, kPackedDepth);
  return std::min(p.K, most);
}

// Many rows: an operand that is not read in place is packed once for all of them. A K too long for
// that is done in parts.
void multiply_many_rows(const TileKernels& t, const Product<float>& whole, Run run) {
  thread_local Scratch scratch_a, scratch_b;
  const bool pack_a = !reads_a_in_place(t, whole), pack_b = !reads_b_in_place(t, whole);
  const int64_t packed_n = round_up(whole.N, t.lanes);
  const int64_t depth = part_depth(whole, pack_a, pack_b, packed_n);
  float* const packed_a =
      pack_a ? scratch_a.floats(round_up(whole.M, kChunkRows) * depth) : nullptr;
  float* const packed_b = pack_b ? scratch_b.floats(packed_n * depth) : nullptr;

  for (int64_t k0 = 0; k0 < whole.K; k0 += depth) {
    const int64_t k1 = std::min(whole.K, k0 + depth);
    const Packing a = {transposed(whole.from(whole.a, 0, k0)),
                       {packed_a, k1 - k0, whole.M, kChunkRows}};
    const Packing b = {whole.from(whole.b, k0, 0), {packed_b, k1 - k0, whole.N, t.panel_columns}};
    pack_both(run, a, b);
    multiply_blocks(t, whole, {k0, k1, packed_a, packed_b}, run);
  }
}

}  // namespace

void multiply_fast(const Product<float>& p, Run run) {
  const TileKernels& t = tile_kernels();
  if (p.packed_b != nullptr) {
    multiply_blocks(t, p, {0, p.K, nullptr, static_cast<const float*>(p.packed_b)}, run);
    return;
  }
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

int64_t packed_b_bytes(const MatrixView<float>& /*b*/, int64_t K, int64_t N) {
  return round_up(N, tile_kernels().lanes) * K * static_cast<int64_t>(sizeof(float));
}

void pack_b(const MatrixView<float>& b, int64_t K, int64_t N, void* to) {
  const TileKernels& t = tile_kernels();
  const Packing packing = {b, {static_cast<float*>(to), K, N, t.panel_columns}};
  parallel_for(packing.chunks(), [&](int64_t chunk) { packing.run(chunk); });
}

}  // namespace chargrad::kernels
