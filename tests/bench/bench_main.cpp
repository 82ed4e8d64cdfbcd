// bench [ARGS OF GOOGLE BENCHMARK]   runs the benchmarks
// bench --serve=RECIPE,DTYPE,DROPOUT,THREADS
//     reads numbers of steps from standard input, runs so many training steps and answers each
//     number with one line: for every step its seconds and its seconds of processor time. For
//     compare.py.
// bench --serve_text=RECIPE,DTYPE,START,THREADS
//     reads numbers of characters, draws so many each time after START random ones and answers with
//     the seconds and the seconds of processor time that all took together.
// bench --scale
//     prints how time and memory grow with the sizes of the model and of the text.
// CHARGRAD_CPU names the tier.
#include <benchmark/benchmark.h>

#include <chrono>
#include <ctime>
#include <iostream>
#include <sstream>

#include "engine/kernels/cpu.h"
#include "engine/ops.h"
#include "engine/threads.h"
#include "models/generate.h"
#include "tests/bench/families.h"
#include "tests/bench/recipes.h"

namespace chargrad::bench {
namespace {

std::vector<std::string> words_of(const std::string& what) {
  std::istringstream stream(what);
  std::vector<std::string> words;
  for (std::string word; std::getline(stream, word, ',');) {
    words.push_back(word);
  }
  return words;
}

// Seconds and processor seconds of f, as two words.
template <class F>
void answer_time_of(const F& f) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::clock_t processor = std::clock();
  f();
  std::cout << std::chrono::duration<double>(Clock::now() - start).count() << ' '
            << static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC << ' ';
}

int serve(const std::string& what) {
  const std::vector<std::string> words = words_of(what);
  set_num_threads(std::stoi(words.at(3)));
  TrainingStep training(recipe(words.at(0)), words.at(1) == "bfloat16" ? kBFloat16 : kFloat32,
                        std::stod(words.at(2)));
  for (int steps = 0; std::cin >> steps;) {
    for (int i = 0; i < steps; ++i) {
      answer_time_of([&] { training.run(); });
    }
    std::cout << std::endl;
  }
  return 0;
}

int serve_text(const std::string& what) {
  const std::vector<std::string> words = words_of(what);
  set_num_threads(std::stoi(words.at(3)));
  GPT model(recipe(words.at(0)).config);
  model.eval();
  const AutocastGuard autocast(words.at(1) == "bfloat16" ? kBFloat16 : kFloat32);
  const Tensor start = randint(0, model.vocab_size(), {1, std::stoll(words.at(2))});
  for (int64_t count = 0; std::cin >> count;) {
    answer_time_of([&] { generate(model, start, count); });
    std::cout << std::endl;
  }
  return 0;
}

int run(int argc, char** argv) {
  for (const auto& [flag, serves] : {std::pair<std::string, decltype(&serve)>{"--serve=", serve},
                                     {"--serve_text=", serve_text}}) {
    if (argc == 2 && std::string(argv[1]).rfind(flag, 0) == 0) {
      return serves(argv[1] + flag.size());
    }
  }
  if (argc == 2 && std::string(argv[1]) == "--scale") {
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
