// What compare.py talks to.
#include <chrono>
#include <ctime>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "engine/threads.h"
#include "models/generate.h"
#include "tests/bench/families.h"
#include "tests/bench/gemm_shapes.h"
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

DType dtype_of(const std::string& name) {
  return name == "bfloat16" ? kBFloat16 : kFloat32;
}

// Seconds and processor seconds of f, as two words.
void answer_time_of(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::clock_t processor = std::clock();
  f();
  std::cout << std::chrono::duration<double>(Clock::now() - start).count() << ' '
            << static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC << ' ';
}

// Answers each number with the times of as many calls of f.
void serve_calls(const std::function<void()>& f) {
  for (int64_t count = 0; std::cin >> count;) {
    for (int64_t i = 0; i < count; ++i) {
      answer_time_of(f);
    }
    std::cout << std::endl;
  }
}

}  // namespace

void serve_step(const std::string& what) {
  const std::vector<std::string> words = words_of(what);
  set_num_threads(std::stoi(words.at(3)));
  TrainingStep training(recipe(words.at(0)), dtype_of(words.at(1)), std::stod(words.at(2)));
  serve_calls([&] { training.run(); });
}

void serve_gemm(const std::string& what) {
  const std::vector<std::string> words = words_of(what);
  set_num_threads(std::stoi(words.at(3)));
  Gemm gemm(gemm_shape(recipe(words.at(0)), words.at(2)), dtype_of(words.at(1)));
  serve_calls([&] { gemm.run(); });
}

void serve_text(const std::string& what) {
  const std::vector<std::string> words = words_of(what);
  set_num_threads(std::stoi(words.at(3)));
  GPT model(recipe(words.at(0)).config);
  model.eval();
  const AutocastGuard autocast(dtype_of(words.at(1)));
  const Tensor start = randint(0, model.vocab_size(), {1, std::stoll(words.at(2))});
  for (int64_t count = 0; std::cin >> count;) {
    answer_time_of([&] { generate(model, start, count); });
    std::cout << std::endl;
  }
}

}  // namespace chargrad::bench
