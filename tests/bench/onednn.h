// oneDNN's products of our operands, where this program is built with it (libdnnl-dev).
#pragma once

#include <functional>

#include "tests/bench/gemm_shapes.h"

namespace chargrad::bench {

bool has_onednn();

// A call that multiplies the operands of `gemm` by oneDNN, plain matrices on both sides: it packs
// what it likes in each call, as ours does. It may use the instructions of the active tier and none
// above (on the ref tier those of SSE4.1). Empty without oneDNN, and where it has no such product,
// as of bfloat16 below AVX-512. Requires: `gemm` outlives the call.
std::function<void()> onednn_product(Gemm& gemm);

// How many threads oneDNN's products take that the calling thread starts.
void set_onednn_threads(int count);

}  // namespace chargrad::bench
