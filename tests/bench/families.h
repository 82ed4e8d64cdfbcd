// The families of benchmarks; each function hands its own to Google Benchmark.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace chargrad::bench {

void add_machine();
void add_gemm();
void add_ops();
void add_steps();

// The tables of --scale, to standard output.
void print_scale();

// Adds NAME/threads:N for N = 1, measured by processor time, which other programs disturb little,
// and for all processors, measured by the clock.
void add_for_threads(const std::string& name, const std::function<void(benchmark::State&)>& f,
                     const std::function<void(benchmark::internal::Benchmark*)>& settings);

}  // namespace chargrad::bench
