// What the cache gives is attention over all that was kept, bit for bit.
#include "engine/key_value_cache.h"

#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

constexpr int64_t kPositions = 20;

// The last row of attention over the heads of all rows of qkv (B, T, 3 C), which sees them all.
Tensor last_row_of_attention(const Tensor& qkv, int64_t n_head) {
  AttentionOptions options;
  options.is_causal = true;
  const Tensor y = scaled_dot_product_attention_packed(qkv, n_head, options);
  return narrow(y, 1, y.size(1) - 1, 1);
}

TEST(KeyValueCache, EqualsAttentionOverAllPositions) {
  manual_seed(1);
  struct Case {
    int64_t batch, n_head, C;
  };
  for (const auto& [batch, n_head, C] : std::vector<Case>{{1, 4, 128}, {3, 2, 10}, {2, 1, 7}}) {
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
      const Tensor qkv = randn({batch, kPositions, 3 * C}).to(dtype);
      KeyValueCache cache(batch, n_head, kPositions);
      // In pieces of 5, 1, 1, ..., 2; then from the third position on once more.
      for (int64_t first = 0, t = 5; first < kPositions; first += t, t = first == 18 ? 2 : 1) {
        const Tensor rows = narrow(qkv, 1, first, t);
        cache.keep(narrow(rows, 2, C, 2 * C), first);
        const Tensor q = narrow(narrow(rows, 1, t - 1, 1), 2, 0, C);
        const Tensor expected = last_row_of_attention(narrow(qkv, 1, 0, first + t), n_head);
        EXPECT_EQ(cache.attend(q).to_vector<double>(), expected.to_vector<double>());
      }
      const Tensor other = randn({batch, 1, 3 * C}).to(dtype);
      cache.keep(narrow(other, 2, C, 2 * C), 2);
      EXPECT_EQ(
          cache.attend(narrow(other, 2, 0, C)).to_vector<double>(),
          last_row_of_attention(cat({narrow(qkv, 1, 0, 2), other}, 1), n_head).to_vector<double>());
    }
  }
}

TEST(KeyValueCache, RefusesNonsense) {
  KeyValueCache cache(2, 4, 3);
  const auto keep = [&](const Tensor& kv, int64_t first) {
    return error_text<std::invalid_argument>([&] { cache.keep(kv, first); });
  };
  const auto attend = [&](const Tensor& q) {
    return error_text<std::invalid_argument>([&] { cache.attend(q); });
  };
  EXPECT_EQ(attend(ones({2, 1, 8})), "KeyValueCache: no position is kept yet");
  for (const auto& [shape, text] : std::vector<std::pair<Shape, const char*>>{
           {{2, 8}, "[2, 8]"}, {{1, 1, 16}, "[1, 1, 16]"}, {{2, 1, 12}, "[2, 1, 12]"}}) {
    EXPECT_EQ(keep(ones(shape), 0),
              std::string("KeyValueCache: kv must have shape [2, t, 2 C] with C a multiple of 4, "
                          "got ") +
                  text);
  }
  EXPECT_EQ(keep(ones({2, 1, 16}), 1),
            "KeyValueCache: positions from 1 must follow the 0 that are kept and end within 3, got "
            "1");
  cache.keep(ones({2, 2, 16}), 0);
  EXPECT_EQ(keep(ones({2, 2, 16}), 2),
            "KeyValueCache: positions from 2 must follow the 2 that are kept and end within 3, got "
            "2");
  EXPECT_EQ(keep(ones({2, 1, 16}, kFloat64), 2),
            "KeyValueCache: kv must be float32 with 2 C = 16, got float64 of shape [2, 1, 16]");
  EXPECT_EQ(attend(ones({2, 1, 12})),
            "KeyValueCache: q must be float32 of shape [2, 1, 8], got float32 of shape [2, 1, 12]");
}

}  // namespace
}  // namespace chargrad
