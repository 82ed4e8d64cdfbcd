// Every matrix product of both models in float32 and bfloat16: forward, input gradient, weight
// gradient; GF/s, and the share of the peak measured right before.
#include <benchmark/benchmark.h>

#include "tests/bench/families.h"
#include "tests/bench/gemm_shapes.h"
#include "tests/bench/machine.h"

namespace chargrad::bench {
namespace {

void run(benchmark::State& state, const GemmShape& shape, DType dtype) {
  Gemm gemm(shape, dtype);
  gemm.run();
  const double peak = peak_gflops(dtype) * 1e9;
  const LoopTime time;
  for (auto _ : state) {
    gemm.run();
  }
  const double flops = shape.flops() * static_cast<double>(state.iterations());
  state.counters["of_peak"] = flops / peak / time.seconds();
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}

}  // namespace

void add_gemm() {
  for (const Recipe& r : recipes()) {
    for (const GemmShape& shape : gemm_shapes(r)) {
      for (const DType dtype : {kFloat32, kBFloat16}) {
        add_for_threads(
            "gemm/" + r.name + "/" + std::string(dtype_name(dtype)) + "/" + shape.name,
            [shape, dtype](benchmark::State& state) { run(state, shape, dtype); },
            [](auto* entry) { entry->MinTime(0.1)->Unit(benchmark::kMicrosecond); });
      }
    }
  }
}

}  // namespace chargrad::bench
