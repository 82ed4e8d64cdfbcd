// Which register tile multiplies bfloat16.
#include "engine/kernels/cpu.h"
#include "engine/kernels/gemm_tile_bf16.h"

namespace chargrad::kernels {

const PairTileKernels& pair_tile_kernels() {
#if defined(__x86_64__)
  return active_tier() == Tier::kAmx ? pair_tile_kernels_amx() : pair_tile_kernels_avx512bf16();
#else
  detail::fail_check("kernels: this processor multiplies no bfloat16");
#endif
}

}  // namespace chargrad::kernels
