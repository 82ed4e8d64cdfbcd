// bench [ARGS OF GOOGLE BENCHMARK]   runs the benchmarks
// bench --serve=RECIPE,DTYPE,DROPOUT,THREADS
//     reads numbers of steps from standard input, runs so many training steps and answers each
//     number with one line: for every step its seconds and its seconds of processor time. For
//     compare.py.
// CHARGRAD_CPU names the tier.
#include <benchmark/benchmark.h>

#include <chrono>
#include <ctime>
#include <iostream>
#include <sstream>

#include "engine/kernels/cpu.h"
#include "engine/threads.h"
#include "tests/bench/families.h"
#include "tests/bench/recipes.h"

namespace chargrad::bench {
namespace {

int serve(const std::string& what) {
  std::istringstream words(what);
  std::string name, dtype, dropout, threads;
  for (std::string* word : {&name, &dtype, &dropout, &threads}) {
    std::getline(words, *word, ',');
  }
  set_num_threads(std::stoi(threads));
  TrainingStep training(recipe(name), dtype == "bfloat16" ? kBFloat16 : kFloat32,
                        std::stod(dropout));
  using Clock = std::chrono::steady_clock;
  for (int steps = 0; std::cin >> steps;) {
    for (int i = 0; i < steps; ++i) {
      const auto start = Clock::now();
      const std::clock_t processor = std::clock();
      training.run();
      std::cout << std::chrono::duration<double>(Clock::now() - start).count() << ' '
                << static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC << ' ';
    }
    std::cout << std::endl;
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::string flag = "--serve=";
  if (argc == 2 && std::string(argv[1]).rfind(flag, 0) == 0) {
    return serve(argv[1] + flag.size());
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
