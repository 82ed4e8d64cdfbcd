#include "engine/kernels/cpu.h"

#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/check.h"
#include "engine/kernels/highway.h"

// Highway's own headers come after its settings.
#include <hwy/targets.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace chargrad::kernels {

namespace {

constexpr std::string_view kNames[] = {"ref", "avx2", "avx512", "avx512bf16", "amx"};

#if defined(__x86_64__)

// AVX512_BF16: CPUID leaf 7, subleaf 1, EAX bit 5.
bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && ((a >> 5) & 1) != 0;
}

// AMX-TILE and AMX-BF16: CPUID leaf 7, EDX bits 24 and 22. Tile registers are large, so Linux
// hands them out per process and on request only; the request is made here, once.
bool has_amx() {
#if defined(__linux__)
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;               // The state component XTILEDATA.
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && ((d >> 24) & 1) != 0 &&
         ((d >> 22) & 1) != 0 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::vector<Tier> detect_tiers() {
  std::vector<Tier> tiers = {Tier::kRef};
  const int64_t targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX2) == 0) {
    return tiers;
  }
  tiers.push_back(Tier::kAvx2);
  if ((targets & HWY_AVX3) == 0) {
    return tiers;
  }
  tiers.push_back(Tier::kAvx512);
  if (has_avx512_bf16()) {
    tiers.push_back(Tier::kAvx512Bf16);
    if (has_amx()) {
      tiers.push_back(Tier::kAmx);
    }
  }
  return tiers;
}

#else

std::vector<Tier> detect_tiers() {
  return {Tier::kRef, Tier::kAvx2};
}

#endif

std::string supported_names() {
  std::string names;
  for (const Tier tier : supported_tiers()) {
    names.append(names.empty() ? "" : ", ").append(tier_name(tier));
  }
  return names;
}

Tier choose_tier() {
  supported_tiers();  // Before Highway is told to hide any of them.
  const char* const name = std::getenv("CHARGRAD_CPU");
  const Tier tier = tier_from_name(name == nullptr ? "" : name);
#if defined(__x86_64__)
  if (tier == Tier::kAvx2) {
    hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  }
#endif
  return tier;
}

}  // namespace

std::string_view tier_name(Tier tier) {
  return kNames[static_cast<int>(tier)];
}

const std::vector<Tier>& supported_tiers() {
  static const std::vector<Tier> tiers = detect_tiers();
  return tiers;
}

Tier tier_from_name(std::string_view name) {
  if (name.empty()) {
    return supported_tiers().back();
  }
  for (const Tier tier : supported_tiers()) {
    if (tier_name(tier) == name) {
      return tier;
    }
  }
  for (const std::string_view known : kNames) {
    CHARGRAD_CHECK(known != name, "CHARGRAD_CPU=", name,
                   " is not supported by this CPU; it supports ", supported_names());
  }
  detail::fail_check("CHARGRAD_CPU=", name, " is not a tier; this CPU supports ",
                     supported_names());
}

Tier active_tier() {
  static const Tier tier = choose_tier();
  return tier;
}

bool has_fast_bfloat16() {
  return active_tier() == Tier::kAvx512Bf16 || active_tier() == Tier::kAmx;
}

}  // namespace chargrad::kernels
