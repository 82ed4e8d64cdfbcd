// Cuts a bfloat16 product into blocks, packs what the register tile reads, and hands the blocks to
// the threads.
#include <algorithm>

#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/scratch.h"

namespace chargrad::kernels {

namespace {

// Rows of one chunk: at K = 1536 a block of A of 295 kB, beside a panel of B of 197 kB in the
// second cache. A K so long that both would not fit gets half of it.
constexpr int64_t kChunkRows = 96;
constexpr int64_t kLongRow = 2048;
// Up to this many rows reading B bounds the speed, and each panel is packed right before its use.
constexpr int64_t kFewRows = 24;
// Elements of a packed operand (8 MB): larger ones are packed and used in parts.
constexpr int64_t kPackedSize = int64_t{1} << 22;
// Rows of k that one chunk packs: two cache lines of a packed row of A.
constexpr int64_t kPackChunk = 64;
// Added to packed rows of A: with a power of two from row to row they would share few cache sets.
constexpr int64_t kRowPadding = 32;

template <class C>
void multiply_panel(const PairTileKernels& t, const PairPanelArgs<C>& args) {
  if constexpr (std::is_same_v<C, float>) {
    t.multiply_panel(args);
  } else {
    t.multiply_panel_rounded(args);
  }
}

// Where the run of the register tile from k ends: K is never cut, but a long one into stretches.
int64_t stretch(int64_t K) {
  return K > kLongK ? kStretchKBFloat16 : K;
}

// Whether the register tile can read A in place.
template <class C>
bool has_pair_rows(const Product<bfloat16, C>& p) {
  return p.a.column_stride == 1 && p.K % 2 == 0;
}

// Rows of pairs of A for k in [k0, k1).
struct PackedRows {
  const bfloat16* data;
  int64_t ld;
};

// The part of C that `p` describes, over k in [k0, k1), panel by panel.
template <class C>
void multiply_block(const PairTileKernels& t, const Product<bfloat16, C>& p, int64_t k0, int64_t k1,
                    const PackedRows& a, const PairPanels& b, int64_t first, int64_t last) {
  const int64_t pairs = (k1 - k0 + 1) / 2;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t j = panel * kPairPanelColumns;
    PairPanelArgs<C> args = {};
    args.rows = p.M;
    args.columns = std::min(kPairPanelColumns, b.columns - j);
    args.pairs = pairs;
    args.a = a.data;
    args.a_row_stride = a.ld;
    args.a_pair_stride = 2;
    args.b = b.data + j * pairs * 2;
    args.ldb = panel_ld(b.columns, panel);
    args.c = p.c + j;
    args.ldc = p.ldc;
    args.bias = p.bias == nullptr ? nullptr : p.bias + j;
    args.mode = k0 == 0 ? SumMode::kBegin : SumMode::kAdd;
    multiply_panel(t, args);
  }
}

// All of A, in place or packed by this thread.
template <class C>
PackedRows all_pair_rows(const Product<bfloat16, C>& p) {
  if (has_pair_rows(p)) {
    return {p.a.data, p.a.row_stride};
  }
  thread_local Scratch scratch;
  const int64_t ld = round_up(p.K, 2) + kRowPadding;
  bfloat16* const rows = scratch.bfloat16s(p.M * ld);
  pack_pair_rows(p.a, p.M, p.K, rows, ld);
  return {rows, ld};
}

// Few rows: a chunk is one panel of B.
template <class C>
void multiply_few_rows(const PairTileKernels& t, const Product<bfloat16, C>& whole, Run run) {
  const PackedRows a = all_pair_rows(whole);
  for_chunks(run, ceil_div(whole.N, kPairPanelColumns), [&](int64_t panel) {
    const int64_t j = panel * kPairPanelColumns;
    const Product<bfloat16, C> p =
        whole.part(0, whole.M, j, std::min(kPairPanelColumns, whole.N - j));
    thread_local Scratch scratch_b;
    for (int64_t k0 = 0, k1 = 0; k0 < p.K; k0 = k1) {
      k1 = std::min(p.K, k0 + stretch(p.K));
      const PairPanels b = {scratch_b.bfloat16s(panels_size(k1 - k0, p.N)), k1 - k0, p.N};
      pack_pairs(p.from(p.b, k0, 0), b, 0, k1 - k0, 0, 1);
      multiply_block(t, p, k0, k1, {a.data + k0, a.ld}, b, 0, 1);
    }
  });
}

// Packs B in chunks that read memory in one stream each.
struct PackB {
  MatrixView<bfloat16> m;
  PairPanels to;

  int64_t panels() const { return ceil_div(to.columns, kPairPanelColumns); }
  int64_t chunks() const {
    return m.column_stride == 1 ? ceil_div(to.depth, kPackChunk) : panels();
  }
  void run(int64_t chunk) const {
    if (m.column_stride == 1) {
      const int64_t k = chunk * kPackChunk;
      pack_pairs(m, to, k, std::min(k + kPackChunk, to.depth), 0, panels());
    } else {
      pack_pairs(m, to, 0, to.depth, chunk, chunk + 1);
    }
  }
};

// The same for A, (rows, depth).
struct PackA {
  MatrixView<bfloat16> m;
  int64_t rows;
  int64_t depth;
  bfloat16* to;  // Null where A is read in place.
  int64_t ld;

  bool by_rows() const { return m.column_stride == 1; }
  int64_t chunks() const {
    return to == nullptr ? 0 : by_rows() ? ceil_div(rows, kChunkRows) : ceil_div(depth, kPackChunk);
  }
  void run(int64_t chunk) const {
    if (by_rows()) {
      const int64_t i = chunk * kChunkRows;
      pack_pair_rows({m.data + i * m.row_stride, m.row_stride, 1}, std::min(kChunkRows, rows - i),
                     depth, to + i * ld, ld);
    } else {
      const int64_t k = chunk * kPackChunk;
      pack_pair_rows({m.data + k * m.column_stride, m.row_stride, m.column_stride}, rows,
                     std::min(kPackChunk, depth - k), to + k, ld);
    }
  }
};

// All of C, over k in [k0, k1). A chunk is some rows and some panels.
template <class C>
void multiply_blocks(const PairTileKernels& t, const Product<bfloat16, C>& whole, int64_t k0,
                     int64_t k1, const PackedRows& a, const PairPanels& b, Run run) {
  const int64_t rows = k1 - k0 > kLongRow ? kChunkRows / 2 : kChunkRows;
  const int64_t row_chunks = ceil_div(whole.M, rows);
  const int64_t panels = ceil_div(whole.N, kPairPanelColumns);
  const int64_t column_chunks = std::min(panels, ceil_div(kEnoughChunks, row_chunks));
  for_chunks(run, row_chunks * column_chunks, [&](int64_t chunk) {
    const int64_t i = chunk / column_chunks * rows, column_chunk = chunk % column_chunks;
    multiply_block(t, whole.part(i, std::min(rows, whole.M - i), 0, whole.N), k0, k1,
                   {a.data + i * a.ld, a.ld}, b, column_chunk * panels / column_chunks,
                   (column_chunk + 1) * panels / column_chunks);
  });
}

// Many rows: B is packed once for all of them, and so is A where it must be.
template <class C>
void multiply_many_rows(const PairTileKernels& t, const Product<bfloat16, C>& whole, Run run) {
  thread_local Scratch scratch_a, scratch_b;
  const int64_t depth = stretch(whole.K);
  const bool pack_a = !has_pair_rows(whole);
  const int64_t lda = round_up(depth, 2) + kRowPadding;
  bfloat16* const packed_a = pack_a ? scratch_a.bfloat16s(whole.M * lda) : nullptr;
  bfloat16* const packed_b = scratch_b.bfloat16s(panels_size(depth, whole.N));

  for (int64_t k0 = 0; k0 < whole.K; k0 += depth) {
    const int64_t k1 = std::min(whole.K, k0 + depth);
    const PackA a = {whole.from(whole.a, 0, k0), whole.M, k1 - k0, packed_a, lda};
    const PackB b = {whole.from(whole.b, k0, 0), {packed_b, k1 - k0, whole.N}};
    for_chunks(run, a.chunks() + b.chunks(), [&](int64_t chunk) {
      chunk < a.chunks() ? a.run(chunk) : b.run(chunk - a.chunks());
    });
    multiply_blocks(t, whole, k0, k1,
                    pack_a ? PackedRows{packed_a, lda} : PackedRows{a.m.data, a.m.row_stride}, b.to,
                    run);
  }
}

// The panels of k in [k0, k1) in a whole B that pack_b has packed.
PairPanels packed_part(const void* packed, int64_t N, int64_t k0, int64_t k1) {
  auto* const data = static_cast<bfloat16*>(const_cast<void*>(packed));
  return {data + panels_size(k0, N), k1 - k0, N};
}

template <class C>
void multiply_packed(const PairTileKernels& t, const Product<bfloat16, C>& p, Run run) {
  const PackedRows a = all_pair_rows(p);
  for (int64_t k0 = 0, k1 = 0; k0 < p.K; k0 = k1) {
    k1 = std::min(p.K, k0 + stretch(p.K));
    multiply_blocks(t, p, k0, k1, {a.data + k0, a.ld}, packed_part(p.packed_b, p.N, k0, k1), run);
  }
}

template <class C>
void multiply_pairs_of(const Product<bfloat16, C>& p, Run run) {
  const PairTileKernels& t = pair_tile_kernels();
  if (p.packed_b != nullptr) {
    multiply_packed(t, p, run);
    return;
  }
  if (p.M <= kFewRows || (run == Run::kSerial && p.M <= kChunkRows)) {
    multiply_few_rows(t, p, run);
    return;
  }
  // Operands whose packed form would be too large are cut.
  const int64_t depth = stretch(p.K);
  const int64_t most_columns = kPackedSize / depth / kPairPanelColumns * kPairPanelColumns;
  const int64_t most_rows = has_pair_rows(p) ? p.M : kPackedSize / depth / kChunkRows * kChunkRows;
  for (int64_t j = 0; j < p.N; j += most_columns) {
    for (int64_t i = 0; i < p.M; i += most_rows) {
      multiply_many_rows(
          t, p.part(i, std::min(most_rows, p.M - i), j, std::min(most_columns, p.N - j)), run);
    }
  }
}

}  // namespace

void multiply_pairs(const Product<bfloat16, float>& p, Run run) {
  multiply_pairs_of(p, run);
}

void multiply_pairs(const Product<bfloat16>& p, Run run) {
  multiply_pairs_of(p, run);
}

void pack_pairs_of_b(const MatrixView<bfloat16>& b, int64_t K, int64_t N, void* to) {
  for (int64_t k0 = 0, k1 = 0; k0 < K; k0 = k1) {
    k1 = std::min(K, k0 + stretch(K));
    const PackB part = {Product<bfloat16>::from(b, k0, 0), packed_part(to, N, k0, k1)};
    parallel_for(part.chunks(), [&](int64_t chunk) { part.run(chunk); });
  }
}

}  // namespace chargrad::kernels
