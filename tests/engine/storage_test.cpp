// Memory behind tensors: handed out again, cut and joined, given back.
#include "engine/storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/ops.h"

namespace chargrad {
namespace {

constexpr int64_t kUnit = int64_t{2} << 20;  // the smallest block that is a part of another

using Block = std::unique_ptr<Storage>;

Block block(int64_t bytes) {
  return std::make_unique<Storage>(bytes);
}

int64_t held() {
  return memory_stats().in_use + memory_stats().kept;
}

TEST(Storage, FreedBlocksAreHandedOutAgain) {
  const void* first = zeros({1000}).raw_data();
  EXPECT_EQ(zeros({1000}).raw_data(), first);
}

TEST(Storage, BlocksAreAligned) {
  for (const int64_t n : {1, 17, 1000, 3 << 20}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(zeros({n}).raw_data()) % 64, 0u) << n;
  }
}

TEST(Storage, StatsCountWhatIsInUseAndKept) {
  release_kept_memory();
  const MemoryStats before = memory_stats();
  {
    const Tensor x = zeros({4096});
    EXPECT_EQ(memory_stats().in_use, before.in_use + int64_t{16384});
  }
  EXPECT_EQ(memory_stats().in_use, before.in_use);
  EXPECT_EQ(memory_stats().kept, int64_t{16384});
  release_kept_memory();
  EXPECT_EQ(memory_stats().kept, 0);
}

TEST(Storage, ALargeBlockIsCutAndJoinedAgain) {
  release_kept_memory();
  Block whole = block(12 * kUnit);
  const int64_t most = held();
  whole.reset();
  std::vector<Block> parts;
  for (const int64_t part : {4, 1, 5, 2}) {
    parts.push_back(block(part * kUnit));
  }
  EXPECT_EQ(held(), most);
  for (const int64_t i : {1, 3, 0, 2}) {  // without neighbours, then before, after, between
    parts[static_cast<size_t>(i)].reset();
  }
  whole = block(12 * kUnit);
  EXPECT_EQ(held(), most);
}

TEST(Storage, TheSmallestPartThatIsLargeEnoughIsCut) {
  release_kept_memory();
  Block large = block(8 * kUnit);
  const Block between = block(kUnit);
  Block small = block(3 * kUnit);
  const Block below = block(kUnit);
  const std::byte *const in_large = large->data(), *const in_small = small->data();
  large.reset();
  small.reset();
  const Block two = block(2 * kUnit), four = block(4 * kUnit);
  EXPECT_GE(two->data(), in_small);
  EXPECT_LE(two->data(), in_small + kUnit);
  EXPECT_GE(four->data(), in_large);
  EXPECT_LE(four->data(), in_large + 4 * kUnit);
}

TEST(Storage, FreePartsAreGivenBackAndThoseInUseStay) {
  release_kept_memory();
  const int64_t before = held();
  Block whole = block(4 * kUnit);
  whole.reset();
  Block part = block(kUnit);
  std::fill_n(part->data(), part->bytes(), std::byte{7});
  release_kept_memory();
  EXPECT_EQ(held(), before + kUnit);
  EXPECT_EQ(std::count(part->data(), part->data() + part->bytes(), std::byte{7}), kUnit);
  const Block other = block(4 * kUnit);
  EXPECT_EQ(held(), before + 5 * kUnit);
  part.reset();
  release_kept_memory();
  EXPECT_EQ(held(), before + 4 * kUnit);
}

// Blocks from the system lie side by side, so that what they leave is joined too.
TEST(Storage, NeighboursFromTheSystemAreJoined) {
  release_kept_memory();
  const int64_t before = held();
  Block first = block(2 * kUnit), second = block(3 * kUnit);
  first.reset();
  second.reset();
  const Block both = block(5 * kUnit);
  EXPECT_EQ(held(), before + 5 * kUnit);
}

TEST(Storage, TheLowestFreePartGrowsByWhatItLacks) {
  release_kept_memory();
  const int64_t before = held();
  const Block kept = block(2 * kUnit);
  block(3 * kUnit).reset();
  const Block large = block(5 * kUnit);
  EXPECT_EQ(held(), before + 7 * kUnit);
}

TEST(Storage, BlocksInUseNeverOverlap) {
  std::mt19937 random(1);
  std::vector<Block> blocks;
  for (int step = 0; step < 2000; ++step) {
    if (blocks.size() < 40 && random() % 2 == 0) {
      blocks.push_back(
          block(static_cast<int64_t>(1 + random() % (random() % 4 ? 2 * kUnit : 4096))));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()->data()) % 64, 0u);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      blocks.pop_back();
    }
    std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
    ranges.reserve(blocks.size());
    for (const Block& b : blocks) {
      ranges.emplace_back(b->data(), b->data() + b->bytes());
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      ASSERT_LE(ranges[i - 1].second, ranges[i].first) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace chargrad
