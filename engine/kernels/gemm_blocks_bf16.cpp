// Cuts a bfloat16 product into blocks, packs what the register tile reads, and hands the blocks to
// the threads.
//
// Measured 2026-11-29 on AMD EPYC (Zen 4, family 25 model 17), one thread, processor time, best of
// several on a busy machine; the peak of the dot product unit in the same runs was 227-236 GF/s:
//   768 rows, widths 128 to 512 (a small GPT): 224-231 GF/s forward, 223-232 input gradient,
//     207-217 weight gradient;
//   16384 rows, widths 384 to 1536: 221-228 forward, 223-229 input gradient, 200-216 weight
//     gradient, which reads both operands from memory once;
//   a head of 65 columns: 177-181 forward, 191-211 input gradient, 178-191 weight gradient.
// What lost: A of weight gradients in rows of pairs instead of panels (80 % of the peak against
// 86), stretches of 1024 and 2048 (1 and 3 % slower in weight gradients than 512), huge pages for
// the packed operands (no difference).
#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/kernels/gemm_product.h"
#include "engine/kernels/gemm_tile_bf16.h"
#include "engine/kernels/scratch.h"

namespace chargrad::kernels {

namespace {

// Rows of one chunk: at K = 1536 a block of A of 295 kB, beside a panel of B of 197 kB in the
// second cache. A K so long that both would not fit gets half of it. Where A is packed, a chunk is
// one panel of it.
constexpr int64_t kChunkRows = 96;
constexpr int64_t kLongRow = 2048;
// Up to this many rows reading B bounds the speed, and each panel is packed right before its use.
constexpr int64_t kFewRows = 24;
// Elements of a packed operand (8 MB): larger ones are packed and used in parts.
constexpr int64_t kPackedSize = int64_t{1} << 22;
// Up to this many elements of C, a long K is cut into stretches for the threads; so many at once
// take 1 MB of sums.
constexpr int64_t kSmallC = int64_t{1} << 15;
constexpr int64_t kStretchesAtOnce = 8;
constexpr int64_t kRowsAddedUp = 16;
// Rows of k that one chunk packs.
constexpr int64_t kPackChunk = 32;
// Up to so many rows and so long a K, each thread packs for itself what it multiplies, of both
// operands together so many elements (1 MB) at most.
constexpr int64_t kOwnRows = 1024;
constexpr int64_t kOwnChunks = 16;
constexpr int64_t kOwnSize = int64_t{1} << 19;

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

// A block of rows of A as the register tile reads it.
struct RowsOfA {
  const bfloat16* data;
  int64_t row_stride;
  int64_t pair_stride;
};

// Where A is read: in rows or in panels of A^T. Both begin with k = first_k.
struct SourceA {
  const bfloat16* rows_data;
  int64_t ld;
  PairPanels panels;  // Without data if A is read in rows.
  int64_t first_k;
  int64_t odd_depth;  // Of rows that do not end in a whole pair; else 0.

  bool in_panels() const { return panels.data != nullptr; }
  // Rows from i on, pairs from k on. Requires: i begins a panel if there are any.
  RowsOfA rows(int64_t i, int64_t k) const {
    if (!in_panels()) {
      return {rows_data + i * ld + (k - first_k), ld, 2};
    }
    const int64_t panel_stride = panel_ld(panels.columns, i / kPairPanelColumns);
    return {panels.data + i * round_up(panels.depth, 2) + (k - first_k) / 2 * panel_stride, 2,
            panel_stride};
  }
};

// Packs a matrix in chunks that read memory in one stream each.
struct Packing {
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

// The same for A (rows, depth), which is read in rows where they are contiguous and becomes panels
// of A^T elsewhere.
class PackingA {
 public:
  PackingA(const MatrixView<bfloat16>& a, int64_t rows, int64_t depth, int64_t first_k,
           Scratch& scratch)
      : a_(a), depth_(depth), first_k_(first_k) {
    if (needed(a)) {
      panels_ = {transposed(a), {scratch.bfloat16s(panels_size(depth, rows)), depth, rows}};
    }
  }
  static bool needed(const MatrixView<bfloat16>& a) { return a.column_stride != 1; }

  int64_t chunks() const { return needed(a_) ? panels_.chunks() : 0; }
  void run(int64_t chunk) const { panels_.run(chunk); }
  SourceA source() const {
    return {a_.data, a_.row_stride, panels_.to, first_k_,
            needed(a_) || depth_ % 2 == 0 ? 0 : depth_};
  }

 private:
  MatrixView<bfloat16> a_;
  int64_t depth_;
  int64_t first_k_;
  Packing panels_ = {};
};

// `rows` rows of A from i on, copied so that they end in a whole pair.
RowsOfA copied_rows(const SourceA& a, int64_t i, int64_t rows, Scratch& scratch) {
  const int64_t ld = round_up(a.odd_depth + 1, 32);  // Whole lines.
  bfloat16* const to = scratch.bfloat16s(rows * ld);
  pack_pair_rows({a.rows_data + i * a.ld, a.ld, 1}, rows, a.odd_depth, to, ld);
  return {to, ld, 2};
}

// A whole A, packed by this thread where it must be.
template <class C>
SourceA whole_a(const PairTileKernels& t, const Product<bfloat16, C>& p) {
  thread_local Scratch scratch;
  const PackingA packing(p.a, p.M, p.K, 0, scratch);
  for (int64_t chunk = 0; chunk < packing.chunks(); ++chunk) {
    packing.run(chunk);
  }
  const SourceA source = packing.source();
  if (source.odd_depth == 0 || !t.reads_rows) {
    return source;
  }
  const RowsOfA rows = copied_rows(source, 0, p.M, scratch);
  return {rows.data, rows.row_stride, {}, 0, 0};
}

// `rows` rows of A from i on, which serve several panels of B. For a register tile that reads rows,
// odd ones are copied, and panels of A turned into rows: it would do so again for each panel.
RowsOfA rows_for_many_panels(const PairTileKernels& t, const SourceA& a, int64_t i, int64_t rows,
                             int64_t k0, int64_t k1) {
  thread_local Scratch scratch;
  if (a.odd_depth > 0 && t.reads_rows) {
    return copied_rows(a, i, rows, scratch);
  }
  const RowsOfA from = a.rows(i, k0);
  if (!a.in_panels() || !t.reads_rows) {
    return from;
  }
  const int64_t pairs = ceil_div(k1 - k0, 2);
  bfloat16* const to = scratch.bfloat16s(rows * pairs * 2);
  transpose_pairs(from.data, from.row_stride, from.pair_stride, rows, pairs, to, 2 * pairs);
  return {to, 2 * pairs, 2};
}

// The panel of B after this one, which lies behind it: without asking, its first rows of tiles wait
// for the third cache.
Ahead next_panel(const PairPanels& b, int64_t panel) {
  const auto begin = [&b](int64_t i) {
    const int64_t columns = std::min(i * kPairPanelColumns, round_up(b.columns, kPairLanes));
    return reinterpret_cast<const std::byte*>(b.data + columns * round_up(b.depth, 2));
  };
  const std::byte* const end = begin(panel + 2);
  return {begin(panel + 1), end, end, end};
}

// The part of C that `p` describes, over k in [k0, k1), panels [first, last). Its tiles ask for
// what is `ahead`, or without that for the panel after theirs.
template <class C>
void multiply_block(const PairTileKernels& t, const Product<bfloat16, C>& p, int64_t k0, int64_t k1,
                    const RowsOfA& a, const PairPanels& b, int64_t first, int64_t last,
                    Ahead* ahead = nullptr) {
  const int64_t pairs = ceil_div(k1 - k0, 2);
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t j = panel * kPairPanelColumns;
    PairPanelArgs<C> args = {};
    args.rows = p.M;
    args.columns = std::min(kPairPanelColumns, b.columns - j);
    args.pairs = pairs;
    args.a = a.data;
    args.a_row_stride = a.row_stride;
    args.a_pair_stride = a.pair_stride;
    args.b = b.data + j * pairs * 2;
    args.ldb = panel_ld(b.columns, panel);
    args.c = p.c + j;
    args.ldc = p.ldc;
    args.bias = p.bias == nullptr ? nullptr : p.bias + j;
    args.mode = k0 == 0 ? SumMode::kBegin : SumMode::kAdd;
    Ahead next = next_panel(b, panel);
    args.ahead = ahead != nullptr ? ahead : &next;
    args.odd_k = (k1 - k0) % 2 != 0;
    multiply_panel(t, args);
  }
}

// Few rows: a chunk is one panel of B.
template <class C>
void multiply_few_rows(const PairTileKernels& t, const Product<bfloat16, C>& whole, Run run) {
  const SourceA a = whole_a(t, whole);
  for_chunks(run, ceil_div(whole.N, kPairPanelColumns), [&](int64_t panel) {
    const int64_t j = panel * kPairPanelColumns;
    const Product<bfloat16, C> p =
        whole.part(0, whole.M, j, std::min(kPairPanelColumns, whole.N - j));
    thread_local Scratch scratch_b;
    for (int64_t k0 = 0, k1 = 0; k0 < p.K; k0 = k1) {
      k1 = std::min(p.K, k0 + stretch(p.K));
      const PairPanels b = {scratch_b.bfloat16s(panels_size(k1 - k0, p.N)), k1 - k0, p.N};
      pack_pairs(p.from(p.b, k0, 0), b, 0, k1 - k0, 0, 1);
      const int64_t rows = a.in_panels() ? kPairPanelColumns : p.M;
      for (int64_t i = 0; i < p.M; i += rows) {
        multiply_block(t, p.part(i, std::min(rows, p.M - i), 0, p.N), k0, k1, a.rows(i, k0), b, 0,
                       1);
      }
    }
  });
}

// Rows of k of both operands that are packed after a stretch. Where they lie one after the other,
// its products ask for them: packing then finds them in cache, and memory works all the time.
class NextStretch {
 public:
  template <class C>
  NextStretch(const Product<bfloat16, C>& p, int64_t k0, int64_t k1)
      : a_(bytes_of(transposed(p.a), p.M, k0, k1)), b_(bytes_of(p.b, p.N, k0, k1)) {}

  // What the part [begin, end) of `whole` asks for.
  Ahead part(int64_t begin, int64_t end, int64_t whole) const {
    return {b_.at(begin, whole), b_.at(end, whole), a_.at(begin, whole), a_.at(end, whole)};
  }

 private:
  struct Bytes {
    const std::byte* data;
    int64_t count;
    const std::byte* at(int64_t part, int64_t whole) const { return data + count * part / whole; }
  };
  static Bytes bytes_of(const MatrixView<bfloat16>& m, int64_t columns, int64_t k0, int64_t k1) {
    if (m.column_stride != 1 || m.row_stride != columns || k0 >= k1) {
      return {nullptr, 0};
    }
    return {reinterpret_cast<const std::byte*>(m.data + k0 * columns),
            (k1 - k0) * columns * static_cast<int64_t>(sizeof(bfloat16))};
  }

  Bytes a_, b_;
};

// All of C, over k in [k0, k1). A chunk is some rows and some panels. What follows up to next_k is
// packed next.
template <class C>
void multiply_blocks(const PairTileKernels& t, const Product<bfloat16, C>& whole, int64_t k0,
                     int64_t k1, const SourceA& a, const PairPanels& b, Run run,
                     int64_t next_k = 0) {
  const int64_t rows = a.in_panels()        ? kPairPanelColumns
                       : k1 - k0 > kLongRow ? kChunkRows / 2
                                            : kChunkRows;
  const int64_t row_chunks = ceil_div(whole.M, rows);
  const int64_t panels = ceil_div(whole.N, kPairPanelColumns);
  const int64_t column_chunks = std::min(panels, ceil_div(kEnoughChunks, row_chunks));
  const NextStretch next(whole, k1, next_k);
  const bool by_columns = a.in_panels() && whole.N > whole.M;
  for_chunks(run, row_chunks * column_chunks, [&](int64_t chunk) {
    const auto [row_chunk, column_chunk] =
        place_in_grid(chunk, row_chunks, column_chunks, by_columns);
    const int64_t i = row_chunk * rows;
    const Product<bfloat16, C> p = whole.part(i, std::min(rows, whole.M - i), 0, whole.N);
    const int64_t at =
        by_columns ? column_chunk * whole.M + i : i * column_chunks + column_chunk * p.M;
    Ahead ahead = next.part(at, at + p.M, whole.M * column_chunks);
    multiply_block(t, p, k0, k1, rows_for_many_panels(t, a, i, p.M, k0, k1), b,
                   column_chunk * panels / column_chunks,
                   (column_chunk + 1) * panels / column_chunks, a.in_panels() ? &ahead : nullptr);
  });
}

// to = (to or, with `begin`, nothing) + the rows `from`, in order.
void add_up(int64_t rows, int64_t ld, const float* from, int64_t columns, bool begin, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* const row = from + r * ld;
    if (begin && r == 0) {
      std::copy_n(row, columns, to);
      continue;
    }
    for (int64_t j = 0; j < columns; ++j) {
      to[j] += row[j];
    }
  }
}

// Many rows: B is packed once for all of them, and so is A where it must be. More rows of k may
// follow in memory: `more` are packed after this.
template <class C>
void multiply_many_rows(const PairTileKernels& t, const Product<bfloat16, C>& whole, Run run,
                        int64_t more = 0) {
  thread_local Scratch scratch_a, scratch_b;
  const int64_t depth = stretch(whole.K);
  bfloat16* const packed_b = scratch_b.bfloat16s(panels_size(depth, whole.N));
  for (int64_t k0 = 0, k1 = 0; k0 < whole.K; k0 = k1) {
    k1 = std::min(whole.K, k0 + depth);
    const PackingA a(whole.from(whole.a, 0, k0), whole.M, k1 - k0, k0, scratch_a);
    const Packing b = {whole.from(whole.b, k0, 0), {packed_b, k1 - k0, whole.N}};
    pack_both(run, a, b);
    multiply_blocks(t, whole, k0, k1, a.source(), b.to, run,
                    std::min(whole.K + more, k1 + (k1 - k0)));
  }
}

// A packed operand of one thread, whose panels are packed as the thread comes to need them. What
// one thread packs and another reads goes from cache to cache, and back to be written anew: in a
// short product that took longer than to pack some of it twice.
class OwnPanels {
 public:
  // The panels of m (depth, columns), of which [first, last) are packed. Others may be from earlier
  // calls for the same product, which `product` numbers.
  PairPanels get(uint64_t product, const MatrixView<bfloat16>& m, int64_t depth, int64_t columns,
                 int64_t first, int64_t last) {
    const PairPanels panels = {memory_.bfloat16s(panels_size(depth, columns)), depth, columns};
    if (product != product_) {
      product_ = product;
      packed_.assign(static_cast<size_t>(ceil_div(columns, kPairPanelColumns)), false);
    }
    const auto at = [this](int64_t panel) { return packed_.begin() + panel; };
    const int64_t begin = std::find(at(first), at(last), false) - packed_.begin();
    if (begin < last) {  // In one stream, even if some in between are there.
      pack_pairs(m, panels, 0, depth, begin, last);
      std::fill(at(begin), at(last), true);
    }
    return panels;
  }

 private:
  uint64_t product_ = 0;
  std::vector<bool> packed_;
  Scratch memory_;
};

// Whether multiply_by_own_panels is the way.
template <class C>
bool is_short(const Product<bfloat16, C>& p) {
  const int64_t packed = p.N + (PackingA::needed(p.a) ? p.M : 0);
  return p.M <= kOwnRows && p.K <= kLongRow && packed * p.K <= kOwnSize;
}

// All of C, whose blocks are laid out so that a thread has rows of them or columns.
template <class C>
void multiply_by_own_panels(const PairTileKernels& t, const Product<bfloat16, C>& whole, Run run) {
  static std::atomic<uint64_t> products{0};
  const uint64_t product = ++products;
  const bool pack_a = PackingA::needed(whole.a);
  const int64_t rows = pack_a ? kPairPanelColumns : kChunkRows;
  const int64_t row_chunks = ceil_div(whole.M, rows), panels = ceil_div(whole.N, kPairPanelColumns);
  const bool copies_rows =
      t.reads_rows && !pack_a && whole.K % 2 != 0;  // Once, unless there are few.
  const int64_t column_chunks =
      std::min(panels, ceil_div(copies_rows ? kOwnChunks / 2 : kOwnChunks, row_chunks));
  for_chunks(run, row_chunks * column_chunks, [&](int64_t chunk) {
    thread_local OwnPanels own_a, own_b;
    const auto [row_chunk, column_chunk] =
        place_in_grid(chunk, row_chunks, column_chunks, pack_a && whole.N > whole.M);
    const int64_t i = row_chunk * rows, first = column_chunk * panels / column_chunks,
                  last = (column_chunk + 1) * panels / column_chunks;
    SourceA a = {whole.a.data, whole.a.row_stride, {}, 0, whole.K % 2 == 0 ? 0 : whole.K};
    if (pack_a) {
      a = {nullptr, 0, {}, 0, 0};
      a.panels =
          own_a.get(product, transposed(whole.a), whole.K, whole.M, row_chunk, row_chunk + 1);
    }
    const PairPanels b = own_b.get(product, whole.b, whole.K, whole.N, first, last);
    const Product<bfloat16, C> p = whole.part(i, std::min(rows, whole.M - i), 0, whole.N);
    multiply_block(t, p, 0, p.K, rows_for_many_panels(t, a, i, p.M, 0, p.K), b, first, last);
  });
}

// A long K and a small C, as in a head's weight gradient: a chunk is a stretch, packed and
// multiplied by one thread, so that no thread reads what another packed. The sums of the stretches
// are added up in order.
void multiply_by_stretches(const PairTileKernels& t, const Product<bfloat16, float>& p, Run run) {
  thread_local Scratch scratch;
  const int64_t size = p.M * p.N;
  float* const sums = scratch.floats(kStretchesAtOnce * size);
  constexpr int64_t kGroup = kStretchesAtOnce * kStretchKBFloat16;
  for (int64_t k = 0; k < p.K; k += kGroup) {
    const int64_t stretches = ceil_div(std::min(kGroup, p.K - k), kStretchKBFloat16);
    for_chunks(run, stretches, [&](int64_t i) {
      const int64_t k0 = k + i * kStretchKBFloat16, k1 = std::min(p.K, k0 + kStretchKBFloat16);
      multiply_many_rows<float>(t,
                                {p.M, p.N, k1 - k0, p.from(p.a, 0, k0), p.from(p.b, k0, 0),
                                 sums + i * size, p.N, k0 == 0 ? p.bias : nullptr},
                                Run::kSerial, std::min(kStretchKBFloat16, p.K - k1));
    });
    for_chunks(run, ceil_div(p.M, kRowsAddedUp), [&](int64_t chunk) {
      const int64_t last = std::min(p.M, (chunk + 1) * kRowsAddedUp);
      for (int64_t row = chunk * kRowsAddedUp; row < last; ++row) {
        add_up(stretches, size, sums + row * p.N, p.N, /*begin=*/k == 0, p.c + row * p.ldc);
      }
    });
  }
}

// The panels of k in [k0, k1) in a whole B that pack_b has packed.
PairPanels packed_part(const void* packed, int64_t N, int64_t k0, int64_t k1) {
  auto* const data = static_cast<bfloat16*>(const_cast<void*>(packed));
  return {data + panels_size(k0, N), k1 - k0, N};
}

template <class C>
void multiply_packed(const PairTileKernels& t, const Product<bfloat16, C>& p, Run run) {
  const SourceA a = whole_a(t, p);
  for (int64_t k0 = 0, k1 = 0; k0 < p.K; k0 = k1) {
    k1 = std::min(p.K, k0 + stretch(p.K));
    multiply_blocks(t, p, k0, k1, a, packed_part(p.packed_b, p.N, k0, k1), run);
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
  if (is_short(p)) {
    multiply_by_own_panels(t, p, run);
    return;
  }
  if constexpr (std::is_same_v<C, float>) {
    if (p.K > kLongK && p.M * p.N <= kSmallC) {
      multiply_by_stretches(t, p, run);
      return;
    }
  }
  // Operands whose packed form would be too large are cut.
  const int64_t depth = stretch(p.K);
  const int64_t most_columns = kPackedSize / depth / kPairPanelColumns * kPairPanelColumns;
  const int64_t most_rows =
      !PackingA::needed(p.a) ? p.M : kPackedSize / depth / kPairPanelColumns * kPairPanelColumns;
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
    const Packing part = {Product<bfloat16>::from(b, k0, 0), packed_part(to, N, k0, k1)};
    parallel_for(part.chunks(), [&](int64_t chunk) { part.run(chunk); });
  }
}

}  // namespace chargrad::kernels
