// Which instructions the kernels use. The choice is made once, at the first question.
#pragma once

#include <string_view>
#include <vector>

namespace chargrad::kernels {

// Each tier includes those before it. ref: the plain loops. avx2, avx512: Highway's AVX2 and AVX3
// targets. avx512bf16, amx: those, and bfloat16 products by AVX512-BF16 or AMX instructions. On
// other processors avx2 stands for whatever Highway's baseline there is.
enum class Tier { kRef, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// "ref", "avx2", "avx512", "avx512bf16", "amx".
std::string_view tier_name(Tier tier);

// Tiers that this CPU and its kernel can run, worst first; always holds kRef.
const std::vector<Tier>& supported_tiers();

// The tier of that name; an empty name means the best supported one.
// Throws for an unknown name and for a tier that is not supported here.
Tier tier_from_name(std::string_view name);

// The tier that kernels run on: the environment variable CHARGRAD_CPU at the time of the first
// call, else the best supported one. Restricts Highway's dispatch to it. Throws as
// tier_from_name; thread-safe.
Tier active_tier();

// Whether the active tier multiplies bfloat16 faster than float32: avx512bf16 and amx.
bool has_fast_bfloat16();

}  // namespace chargrad::kernels
