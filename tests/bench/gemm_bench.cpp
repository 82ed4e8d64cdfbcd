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
  const double peak = peak_gflops(dtype);
  const LoopTime time;
  for (auto _ : state) {
    gemm.run();
  }
  const double gflops =
      shape.flops() * static_cast<double>(state.iterations()) / time.seconds() * 1e-9;
  state.counters["GF/s"] = gflops;
  state.counters["of peak [%]"] = 100 * gflops / peak;
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
