#include "engine/kernels/gemm_tile_bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/kernels/cpu.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

const bfloat16 kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<bfloat16> random_bfloat16(int64_t n, uint32_t seed) {
  const std::vector<float> x = random_values<float>(n, seed, -2, 2);
  return {x.begin(), x.end()};
}

class PairTile : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_fast_bfloat16()) {
      GTEST_SKIP() << "tier " << tier_name(active_tier()) << " does not multiply bfloat16";
    }
  }
};

class PairPacking : public testing::Test {
 protected:
  void SetUp() override {
    if (active_tier() == Tier::kRef) {
      GTEST_SKIP() << "the ref tier packs nothing";
    }
  }
};

// A block of a product, packed by hand. Between the elements lie NaNs that must not be used.
struct Block {
  int64_t rows, columns, depth;
  int64_t pairs = (depth + 1) / 2;
  int64_t ldb = panel_ld(columns, 0);
  std::vector<bfloat16> a = random_bfloat16(rows * depth, 1);
  std::vector<bfloat16> b = random_bfloat16(depth * columns, 2);
  std::vector<float> bias = random_values<float>(columns, 3, -2, 2);

  // Pairs, with a 0 past an odd end.
  bfloat16 a_at(int64_t i, int64_t k) const { return k < depth ? a[i * depth + k] : bfloat16(0); }
  bfloat16 b_at(int64_t k, int64_t j) const { return k < depth ? b[k * columns + j] : bfloat16(0); }

  std::vector<bfloat16> place_a(int64_t row_stride, int64_t pair_stride) const {
    std::vector<bfloat16> placed(rows * row_stride + pairs * pair_stride, kNan);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < 2 * pairs; ++k) {
        placed[i * row_stride + k / 2 * pair_stride + k % 2] = a_at(i, k);
      }
    }
    return placed;
  }
  std::vector<bfloat16> place_b() const {
    std::vector<bfloat16> placed(pairs * ldb, kNan);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t k = 0; k < 2 * pairs; ++k) {
        placed[k / 2 * ldb + 2 * j + k % 2] = b_at(k, j);
      }
    }
    return placed;
  }

  // Bias and products in double, and the sum of all magnitudes.
  double sum(int64_t i, int64_t j, double* magnitude) const {
    double total = bias[j];
    *magnitude = std::abs(total);
    for (int64_t k = 0; k < depth; ++k) {
      const double term = static_cast<double>(a_at(i, k)) * static_cast<double>(b_at(k, j));
      total += term;
      *magnitude += std::abs(term);
    }
    return total;
  }
};

constexpr int64_t kPadding = 3;  // ldc - columns
constexpr float kMark = 1234;

template <class C>
std::vector<C> multiply(const Block& q, int64_t row_stride, int64_t pair_stride) {
  const auto a = q.place_a(row_stride, pair_stride), b = q.place_b();
  const int64_t ldc = q.columns + kPadding;
  std::vector<C> c(q.rows * ldc, C(kMark));
  const PairPanelArgs<C> args = {q.rows,     q.columns,   q.pairs,       a.data(),
                                 row_stride, pair_stride, b.data(),      q.ldb,
                                 c.data(),   ldc,         q.bias.data(), SumMode::kBegin};
  if constexpr (std::is_same_v<C, float>) {
    pair_tile_kernels().multiply_panel(args);
  } else {
    pair_tile_kernels().multiply_panel_rounded(args);
  }
  return c;
}

// Each product and each addition of the depth + 1 terms rounds once to float32, relative u = 2^-24
// or not at all; what is rounded is at most the sum of all magnitudes. Values far from subnormal.
double tolerance(const Block& q, double magnitude) {
  return 1.01 * static_cast<double>(2 * q.depth + 2) * 0x1p-24 * magnitude;
}

TEST_F(PairTile, OddSizesAndStrides) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 7, 16, 17, 32, 38}) {
    for (const int64_t columns : {1, 16, 17, 33, 48, 63, 64}) {
      for (const int64_t depth : {1, 2, 31, 32, 33, 64, 75}) {
        const Block q{rows, columns, depth};
        const std::string what = "rows " + std::to_string(rows) + ", columns " +
                                 std::to_string(columns) + ", depth " + std::to_string(depth);
        const auto exact = multiply<float>(q, 2 * q.pairs + 1, 2);
        const auto across = multiply<float>(q, 2, 2 * rows + 1);
        const auto both = multiply<float>(q, 6 * q.pairs + 1, 5);
        const auto rounded = multiply<bfloat16>(q, 2 * q.pairs, 2);
        ASSERT_TRUE(same_bits(exact, across)) << what;
        ASSERT_TRUE(same_bits(exact, both)) << what;
        double largest = 0;
        bool largest_is_checked = false;
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns + kPadding; ++j) {
            const auto at = static_cast<size_t>(i * (columns + kPadding) + j);
            ASSERT_EQ(rounded[at].bits, bfloat16(exact[at]).bits) << what;
            if (j >= columns) {
              ASSERT_EQ(exact[at], kMark) << what;
              continue;
            }
            double magnitude = 0;
            const double want = q.sum(i, j, &magnitude);
            ASSERT_NEAR(exact[at], want, tolerance(q, magnitude)) << what << ": " << i << ", " << j;
            if (std::abs(want) > largest) {
              largest = std::abs(want);
              largest_is_checked = catches_one_percent(exact[at], want, tolerance(q, magnitude), 0);
            }
          }
        }
        ASSERT_TRUE(largest_is_checked) << what << ": 1 % of " << largest << " would pass";
      }
    }
  }
}

TEST_F(PairTile, ContinuedSumsAreOneChainAndAddedOnesAreTheirOwn) {
  const int64_t cut = 2 * kPairStep;
  const Block whole{35, 50, 3 * cut + 7};
  const auto a = whole.place_a(2 * whole.pairs, 2), b = whole.place_b();
  const std::vector<float> at_once = multiply<float>(whole, 2 * whole.pairs, 2);

  const int64_t ldc = whole.columns + kPadding;
  const auto run = [&](int64_t k0, int64_t pairs, SumMode mode, std::vector<float>& c) {
    pair_tile_kernels().multiply_panel({whole.rows, whole.columns, pairs, a.data() + k0,
                                        2 * whole.pairs, 2, b.data() + k0 / 2 * whole.ldb,
                                        whole.ldb, c.data(), ldc, whole.bias.data(), mode});
  };
  std::vector<float> continued(at_once.size(), kMark);
  run(0, cut, SumMode::kBegin, continued);
  std::vector<float> added = continued;
  run(2 * cut, whole.pairs - cut, SumMode::kContinue, continued);
  EXPECT_TRUE(same_bits(continued, at_once));

  run(2 * cut, whole.pairs - cut, SumMode::kAdd, added);
  std::vector<float> second(at_once.size(), 0);
  run(2 * cut, whole.pairs - cut, SumMode::kContinue, second);
  std::vector<float> first(at_once.size(), kMark);
  run(0, cut, SumMode::kBegin, first);
  for (int64_t i = 0; i < whole.rows; ++i) {
    for (int64_t j = 0; j < whole.columns; ++j) {
      const auto at = static_cast<size_t>(i * ldc + j);
      ASSERT_EQ(added[at], first[at] + second[at]) << i << ", " << j;
    }
  }
}

// Element (k, j) of a packed matrix, by the definition of PairPanels.
bfloat16 packed_at(const PairPanels& panels, int64_t k, int64_t j) {
  const int64_t p = j / kPairPanelColumns, pairs = (panels.depth + 1) / 2;
  return panels.data[p * kPairPanelColumns * pairs * 2 + k / 2 * panel_ld(panels.columns, p) +
                     j % kPairPanelColumns * 2 + k % 2];
}

// A (depth, columns) matrix of each layout in memory that is full of NaN otherwise.
struct Layout {
  int64_t row_stride, column_stride;
};
std::vector<Layout> layouts(int64_t rows, int64_t columns) {
  return {{columns, 1}, {1, rows}, {columns + 3, 1}, {1, rows + 5}, {3 * columns + 2, 3}};
}
std::vector<bfloat16> placed(int64_t rows, int64_t columns, const Layout& l) {
  const std::vector<bfloat16> values = random_bfloat16(rows * columns, 1);
  std::vector<bfloat16> memory(1 + rows * l.row_stride + columns * l.column_stride, kNan);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      memory[1 + i * l.row_stride + j * l.column_stride] = values[i * columns + j];
    }
  }
  return memory;
}

TEST_F(PairPacking, PanelsHoldEveryElementAndZeros) {
  for (const int64_t depth : {1, 2, 31, 32, 33, 70}) {
    for (const int64_t columns : {1, 8, 15, 16, 17, 64, 65, 130}) {
      for (const Layout& l : layouts(depth, columns)) {
        const auto memory = placed(depth, columns, l);
        const MatrixView<bfloat16> m = {memory.data() + 1, l.row_stride, l.column_stride};
        const int64_t count = panels_size(depth, columns);
        std::vector<bfloat16> packed(count + 1, bfloat16(kMark));
        const PairPanels to = {packed.data(), depth, columns};
        const int64_t panels = (columns + kPairPanelColumns - 1) / kPairPanelColumns;
        const int64_t middle = depth / 4 * 2;
        pack_pairs(m, to, 0, middle, 0, panels);
        pack_pairs(m, to, middle, depth, 0, 1);
        pack_pairs(m, to, middle, depth, 1, panels);
        const int64_t filled = panel_ld(columns, panels - 1) / 2 + (panels - 1) * kPairPanelColumns;
        for (int64_t k = 0; k < (depth + 1) / 2 * 2; ++k) {
          for (int64_t j = 0; j < filled; ++j) {
            const bool inside = k < depth && j < columns;
            const bfloat16 want =
                inside ? m.data[k * m.row_stride + j * m.column_stride] : bfloat16(0);
            ASSERT_EQ(packed_at(to, k, j).bits, want.bits)
                << depth << " x " << columns << ", strides " << l.row_stride << ", "
                << l.column_stride << ": " << k << ", " << j;
          }
        }
        ASSERT_EQ(packed[static_cast<size_t>(count)].bits, bfloat16(kMark).bits);
      }
    }
  }
}

TEST_F(PairPacking, RowsOfPairsHoldEveryElementAndZeros) {
  for (const int64_t rows : {1, 15, 16, 17, 40}) {
    for (const int64_t depth : {1, 2, 31, 32, 33, 70}) {
      for (const Layout& l : layouts(rows, depth)) {
        const auto memory = placed(rows, depth, l);
        const MatrixView<bfloat16> m = {memory.data() + 1, l.row_stride, l.column_stride};
        const int64_t filled = (depth + 1) / 2 * 2;
        for (const int64_t ld : {filled, filled + 5}) {
          std::vector<bfloat16> packed(rows * ld + 1, bfloat16(kMark));
          pack_pair_rows(m, rows, depth, packed.data(), ld);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t k = 0; k < ld; ++k) {
              const bfloat16 want = k < depth ? m.data[i * m.row_stride + k * m.column_stride]
                                              : bfloat16(k < filled ? 0 : kMark);
              ASSERT_EQ(packed[i * ld + k].bits, want.bits)
                  << rows << " x " << depth << ", strides " << l.row_stride << ", "
                  << l.column_stride << ": " << i << ", " << k;
            }
          }
          ASSERT_EQ(packed[static_cast<size_t>(rows * ld)].bits, bfloat16(kMark).bits);
        }
      }
    }
  }
}

TEST_F(PairPacking, TransposedPairs) {
  for (const int64_t rows : {1, 16, 35}) {
    for (const int64_t pairs : {1, 15, 16, 33}) {
      const Block q{rows, 1, 2 * pairs};
      for (const auto& [row_stride, pair_stride] :
           {std::pair<int64_t, int64_t>{2, 2 * rows + 1}, {2 * pairs + 1, 2}, {7 * pairs, 7}}) {
        const auto memory = q.place_a(row_stride, pair_stride);
        std::vector<bfloat16> out(rows * 2 * pairs + 1, bfloat16(kMark));
        transpose_pairs(memory.data(), row_stride, pair_stride, rows, pairs, out.data(), 2 * pairs);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t k = 0; k < 2 * pairs; ++k) {
            ASSERT_EQ(out[i * 2 * pairs + k].bits, q.a_at(i, k).bits) << i << ", " << k;
          }
        }
        ASSERT_EQ(out[static_cast<size_t>(rows * 2 * pairs)].bits, bfloat16(kMark).bits);
      }
    }
  }
}

TEST(FastBFloat16, IsWhatTheTwoBestTiersHave) {
  const bool expected = active_tier() == Tier::kAvx512Bf16 || active_tier() == Tier::kAmx;
  EXPECT_EQ(has_fast_bfloat16(), expected);
}

}  // namespace
}  // namespace chargrad::kernels
