#include "engine/kernels/cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "engine/kernels/highway.h"
#include "tests/engine/kernels/dispatch_target.h"

// After the settings.
#include <hwy/targets.h>

namespace chargrad::kernels {
namespace {

using testing::ElementsAre;
using testing::ThrowsMessage;

std::string supported_names() {
  std::string names;
  for (const Tier tier : supported_tiers()) {
    names += (names.empty() ? "" : ", ") + std::string(tier_name(tier));
  }
  return names;
}

TEST(Cpu, TierNames) {
  EXPECT_EQ(tier_name(Tier::kRef), "ref");
  EXPECT_EQ(tier_name(Tier::kAvx2), "avx2");
  EXPECT_EQ(tier_name(Tier::kAvx512), "avx512");
  EXPECT_EQ(tier_name(Tier::kAvx512Bf16), "avx512bf16");
  EXPECT_EQ(tier_name(Tier::kAmx), "amx");
}

TEST(Cpu, SupportedTiersAreAPrefixOfAll) {
  const Tier all[] = {Tier::kRef, Tier::kAvx2, Tier::kAvx512, Tier::kAvx512Bf16, Tier::kAmx};
  ASSERT_GE(supported_tiers().size(), 1u);
  ASSERT_LE(supported_tiers().size(), std::size(all));
  EXPECT_TRUE(std::equal(supported_tiers().begin(), supported_tiers().end(), all));
}

TEST(Cpu, TierFromName) {
  for (const Tier tier : supported_tiers()) {
    EXPECT_EQ(tier_from_name(tier_name(tier)), tier);
  }
  EXPECT_EQ(tier_from_name(""), supported_tiers().back());
}

TEST(Cpu, UnknownTierIsRefused) {
  for (const std::string name : {"avx10", "AVX2", "avx", "ref "}) {
    EXPECT_THAT(
        [&] { tier_from_name(name); },
        ThrowsMessage<std::invalid_argument>(
            "CHARGRAD_CPU=" + name + " is not a tier; this CPU supports " + supported_names()));
  }
}

TEST(Cpu, UnsupportedTierIsRefused) {
  if (supported_tiers().back() == Tier::kAmx) {
    GTEST_SKIP() << "this CPU supports every tier";
  }
  EXPECT_THAT(
      [] { tier_from_name("amx"); },
      ThrowsMessage<std::invalid_argument>(
          "CHARGRAD_CPU=amx is not supported by this CPU; it supports " + supported_names()));
}

TEST(Cpu, ForcedTierIsTheActiveOne) {
  const char* const forced = std::getenv("CHARGRAD_CPU");
  EXPECT_EQ(active_tier(), forced == nullptr ? supported_tiers().back() : tier_from_name(forced));
}

// What runs, not what was asked for: the dispatched function reports its own target.
TEST(Cpu, HighwayRunsTheActiveTier) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "targets of x86";
#endif
  if (active_tier() == Tier::kRef) {
    GTEST_SKIP() << "the ref tier never calls Highway";
  }
  const bool avx2 = active_tier() == Tier::kAvx2;
  EXPECT_EQ(dispatched_target(), avx2 ? "AVX2" : "AVX3");
  EXPECT_EQ(dispatched_float_lanes(), avx2 ? 8 : 16);
}

TEST(Cpu, OnlyTestedTargetsAreCompiled) {
#if defined(__x86_64__)
  EXPECT_EQ(compiled_targets(), HWY_AVX2 | HWY_AVX3);
#elif defined(__aarch64__)
  EXPECT_EQ(compiled_targets() & ~(HWY_NEON | HWY_EMU128 | HWY_SCALAR), 0);
#else
  GTEST_SKIP() << "no list for this processor";
#endif
}

}  // namespace
}  // namespace chargrad::kernels
