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

// The table of --products: of each whose name holds `what`.
void print_products(const std::string& what);

// The sides of compare.py: each reads numbers from standard input and answers with times.
void serve_step(const std::string& what);
void serve_gemm(const std::string& what);
void serve_text(const std::string& what);

// Adds NAME/threads:N for N = 1, measured by processor time, which other programs disturb little,
// and for all processors, measured by the clock.
void add_for_threads(const std::string& name, const std::function<void(benchmark::State&)>& f,
                     const std::function<void(benchmark::internal::Benchmark*)>& settings);

}  // namespace chargrad::bench
