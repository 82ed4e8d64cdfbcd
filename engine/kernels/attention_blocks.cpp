// One head of attention by blocks. Keys come in blocks of kKeyBlock at fixed places, packed once
// for all rows; rows in blocks of kRowBlock, so that the scores at hand (32 kB) and the packed keys
// and values (128 kB at 64 a head) stay in the second cache. With is_causal a block of rows stops
// at its last visible column.
#include <algorithm>

#include "engine/kernels/attention_head.h"
#include "engine/kernels/attention_products.h"
#include "engine/kernels/attention_rows.h"
#include "engine/kernels/scratch.h"

namespace chargrad::kernels {
namespace {

constexpr int64_t kRowBlock = 32;
constexpr int64_t kKeyBlock = 256;
static_assert(kKeyBlock % kRowBlock == 0 && kForwardRows % kRowBlock == 0);
// From one row of scores to the next: not a power of two, because a column of a transposed operand
// would meet few sets of the first cache.
constexpr int64_t kLdScores = kKeyBlock + 16;

// Hands out parts of a thread's working memory, each on the border of a cache line.
class Workspace {
 public:
  explicit Workspace(float* memory) : next_(memory) {}
  float* take(int64_t count) {
    float* const part = next_;
    next_ += size(count);
    return part;
  }
  static int64_t size(int64_t count) { return round_up(count, 16); }

 private:
  float* next_;
};

// Rows [row, row + rows) of a head, and its keys [key, key + cols).
struct Block {
  const AttentionHead<float>& head;
  int64_t row, rows, key, cols;

  // The rows from `row` on and the keys from `key` on, at most `keys` of them.
  Block(const AttentionHead<float>& h, int64_t first_row, int64_t last_row, int64_t first_key,
        int64_t keys)
      : head(h),
        row(first_row),
        rows(std::min(kRowBlock, last_row - first_row)),
        key(first_key),
        cols(h.is_causal ? std::min(keys, first_row + rows - first_key) : keys) {}

  ScoreBlock scores() const {
    const float* const mask = head.mask.data == nullptr ? nullptr : head.mask.at(row) + key;
    return {rows, cols, kLdScores, row + 1 - key, head.is_causal, head.scale, mask, head.mask.ld};
  }
  // Where dropout counts row r.
  int64_t weight_index(int64_t r) const { return head.first_weight + (row + r) * head.keys + key; }
};

// The first block of rows that sees any key from `key` on.
int64_t first_row(const AttentionHead<float>& head, int64_t key) {
  return head.is_causal ? key / kRowBlock * kRowBlock : 0;
}

void fill_rows(const Rows<float>& to, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(to.at(i), columns, 0.0f);
  }
}

}  // namespace

void attention_rows_fast(const AttentionHead<float>& head, int64_t first, int64_t last,
                         const Rows<float>& y, float* lse) {
  const FloatProducts products;
  const int64_t most_keys = std::min(kKeyBlock, head.keys);
  thread_local Scratch scratch;
  const int64_t kt_size = Workspace::size(products.packed_size(head.D, most_keys));
  const int64_t v_size = Workspace::size(products.packed_size(most_keys, head.E));
  Workspace memory(scratch.floats(kt_size + v_size + kRowBlock * kLdScores + 3 * kForwardRows));
  float* const kt_memory = memory.take(kt_size);
  float* const v_memory = memory.take(v_size);
  const Rows<float> s = {memory.take(kRowBlock * kLdScores), kLdScores};
  const SoftmaxRows softmax = {memory.take(kForwardRows), memory.take(kForwardRows),
                               memory.take(kForwardRows)};
  std::fill_n(softmax.max, last - first, -std::numeric_limits<float>::infinity());
  std::fill_n(softmax.sum, last - first, 0.0f);
  if (head.keys == 0) {
    fill_rows({y.at(first), y.ld}, last - first, head.E);
  }

  const int64_t visible = last > first ? head.seen(last - 1) : 0;
  for (int64_t key = 0; key < visible; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, visible - key);
    const Panels kt = products.pack(transposed(from_row(head.k, key)), head.D, keys, kt_memory);
    const Panels v = products.pack(from_row(head.v, key), keys, head.E, v_memory);
    for (int64_t row = std::max(first, first_row(head, key)); row < last; row += kRowBlock) {
      const Block block(head, row, last, key, keys);
      const int64_t at = row - first;
      const SoftmaxRows here = {softmax.max + at, softmax.sum + at, softmax.shrink + at};
      products.multiply(block.rows, block.cols, head.D, from_row(head.q, row), kt, 0, s,
                        SumMode::kBegin);
      attention_exponentials(block.scores(), s.data, here);
      for (int64_t r = 0; head.dropout_p > 0 && r < block.rows; ++r) {
        dropout(s.at(r), s.at(r), block.cols, head.dropout_p, head.key, block.weight_index(r));
      }
      if (key > 0) {
        attention_scale_rows(block.rows, head.E, here.shrink, y.at(row), y.ld);
      }
      products.multiply(block.rows, head.E, block.cols, {s.data, s.ld, 1}, v, 0, {y.at(row), y.ld},
                        key == 0 ? SumMode::kBegin : SumMode::kContinue);
    }
  }
  attention_normalizers(last - first, softmax, lse + first);
  attention_scale_rows(last - first, head.E, softmax.sum, y.at(first), y.ld);
}

void attention_backward_fast(const AttentionHead<float>& head,
                             const AttentionHeadResult<float>& result,
                             const AttentionHeadGrads<float>& grads) {
  const FloatProducts products;
  const int64_t T = head.T, D = head.D, E = head.E;
  const int64_t most_keys = std::min(kKeyBlock, head.keys);
  const int64_t block_size = kRowBlock * kLdScores;
  thread_local Scratch scratch;
  const int64_t sizes[] = {products.packed_size(T, D),         products.packed_size(T, E),
                           products.packed_size(D, most_keys), products.packed_size(E, most_keys),
                           products.packed_size(most_keys, D), T};
  int64_t total = 3 * block_size;
  for (const int64_t size : sizes) {
    total += Workspace::size(size);
  }
  Workspace memory(scratch.floats(total));
  const Panels q = products.pack(head.q, T, D, memory.take(sizes[0]));
  const Panels dy = products.pack(result.dy, T, E, memory.take(sizes[1]));
  float* const kt_memory = memory.take(sizes[2]);
  float* const vt_memory = memory.take(sizes[3]);
  float* const k_memory = memory.take(sizes[4]);
  float* const delta = memory.take(sizes[5]);
  const Rows<float> p = {memory.take(block_size), kLdScores};
  const Rows<float> ds = {memory.take(block_size), kLdScores};
  const Rows<float> factors = {memory.take(block_size), kLdScores};

  attention_row_dots(T, E, result.dy.data, result.dy.row_stride, result.y.data, result.y.row_stride,
                     delta);
  fill_rows(grads.dq, T, D);
  fill_rows(grads.dk, head.keys, D);
  fill_rows(grads.dv, head.keys, E);
  const int64_t visible = T > 0 ? head.seen(T - 1) : 0;
  for (int64_t key = 0; key < visible; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, visible - key);
    const Panels kt = products.pack(transposed(from_row(head.k, key)), D, keys, kt_memory);
    const Panels vt = products.pack(transposed(from_row(head.v, key)), E, keys, vt_memory);
    const Panels k = products.pack(from_row(head.k, key), keys, D, k_memory);
    for (int64_t row = first_row(head, key); row < T; row += kRowBlock) {
      const Block block(head, row, T, key, keys);
      const int64_t rows = block.rows, cols = block.cols;
      products.multiply(rows, cols, D, from_row(head.q, row), kt, 0, p, SumMode::kBegin);
      products.multiply(rows, cols, E, from_row(result.dy, row), vt, 0, ds, SumMode::kBegin);
      for (int64_t r = 0; head.dropout_p > 0 && r < rows; ++r) {
        dropout_mask(factors.at(r), cols, head.dropout_p, head.key, block.weight_index(r));
      }
      attention_weight_grads(block.scores(), p.data, ds.data, result.lse + row, delta + row,
                             head.dropout_p > 0 ? factors.data : nullptr);
      products.multiply(rows, D, cols, {ds.data, ds.ld, 1}, k, 0, {grads.dq.at(row), grads.dq.ld},
                        SumMode::kContinue);
      products.multiply(cols, E, rows, {p.data, 1, p.ld}, dy, row, {grads.dv.at(key), grads.dv.ld},
                        SumMode::kContinue);
      products.multiply(cols, D, rows, {ds.data, 1, ds.ld}, q, row, {grads.dk.at(key), grads.dk.ld},
                        SumMode::kContinue);
    }
  }
}

}  // namespace chargrad::kernels
