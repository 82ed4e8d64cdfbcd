// bench [ARGS OF GOOGLE BENCHMARK]   runs the benchmarks
// bench --serve=RECIPE,DTYPE,DROPOUT,THREADS
//     reads numbers of steps from standard input, runs so many training steps and answers each
//     number with one line: for every step its seconds and its seconds of processor time. For
//     compare.py.
// bench --serve_gemm=RECIPE,DTYPE,PRODUCT,THREADS
//     the same of a matrix product, as c_fc/forward.
// bench --serve_text=RECIPE,DTYPE,START,THREADS
//     reads numbers of characters, draws so many each time after START random ones and answers with
//     the seconds and the seconds of processor time that all took together.
// bench --products[=TEXT]
//     prints a table in Markdown of those matrix products of both models whose names hold TEXT, as
//     cpu/c_fc: GF/s and the share of the tier's peak, in both dtypes, by one thread and by all; of
//     all threads also what share they reach on parts that have nothing in common; and, in a build
//     with oneDNN (libdnnl-dev), its time in ours, measured in turn.
// bench --scale
//     prints how time and memory grow with the sizes of the model and of the text.
// CHARGRAD_CPU names the tier.
#include <benchmark/benchmark.h>

#include <iostream>
#include <string>
#include <utility>

#include "engine/kernels/cpu.h"
#include "engine/threads.h"
#include "tests/bench/families.h"

namespace chargrad::bench {
namespace {

int run(int argc, char** argv) {
  std::string argument = argc == 2 ? argv[1] : "";
  if (argument == "--products") {
    argument += "=";
  }
  const std::pair<std::string, void (*)(const std::string&)> modes[] = {
      {"--serve=", serve_step},
      {"--serve_gemm=", serve_gemm},
      {"--serve_text=", serve_text},
      {"--products=", print_products}};
  for (const auto& [flag, mode] : modes) {
    if (argument.rfind(flag, 0) == 0) {
      mode(argument.substr(flag.size()));
      return 0;
    }
  }
  if (argument == "--scale") {
    print_scale();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  benchmark::AddCustomContext("tier", std::string(kernels::tier_name(kernels::active_tier())));
  benchmark::AddCustomContext("threads", std::to_string(num_threads()));
  add_machine();
  add_gemm();
  add_ops();
  add_steps();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace chargrad::bench

int main(int argc, char** argv) {
  try {
    return chargrad::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "bench: " << error.what() << '\n';
    return 1;
  }
}
