// main() of the test programs that ctest runs once per CPU tier. A tier that this CPU lacks is
// skipped (exit code 77), which is not a pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "engine/kernels/cpu.h"

namespace {

using chargrad::kernels::Tier;

constexpr int kSkipped = 77;

bool known_but_unsupported(std::string_view name) {
  const auto& supported = chargrad::kernels::supported_tiers();
  for (const Tier tier : {Tier::kRef, Tier::kAvx2, Tier::kAvx512, Tier::kAvx512Bf16, Tier::kAmx}) {
    if (chargrad::kernels::tier_name(tier) == name) {
      return std::find(supported.begin(), supported.end(), tier) == supported.end();
    }
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const char* const name = std::getenv("CHARGRAD_CPU");
  if (!testing::GTEST_FLAG(list_tests) && name != nullptr && known_but_unsupported(name)) {
    std::printf("skipped: this CPU lacks tier %s\n", name);
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
