// The whole training step of both models, its phases, and sampling.
#include <benchmark/benchmark.h>

#include "engine/ops.h"
#include "engine/storage.h"
#include "models/generate.h"
#include "tests/bench/families.h"
#include "tests/bench/machine.h"
#include "tests/bench/recipes.h"
#include "train/step_profile.h"

namespace chargrad::bench {
namespace {

constexpr double kMega = 1 << 20;

struct StepOptions {
  DType dtype;
  double dropout;
};

// A step and the drawing of its batch. Among the counters: the share of the dtype's peak, the page
// faults after the warm-up, the most bytes that tensors took.
void step(benchmark::State& state, const Recipe& r, StepOptions options) {
  release_kept_memory();
  TrainingStep training(r, options.dtype, options.dropout);
  for (int i = 0; i < 2; ++i) {
    training.draw();
    training.run();
  }
  const double peak = peak_gflops(options.dtype);
  const int64_t faults = page_faults();
  const LoopTime time;
  for (auto _ : state) {
    training.draw();
    training.run();
  }
  const double seconds = time.seconds();
  const auto steps = static_cast<double>(state.iterations());
  const double gflops = steps * r.step_flops(training.model().num_params()) / seconds * 1e-9;
  state.counters["tokens/s"] = steps * static_cast<double>(r.tokens()) / seconds;
  state.counters["GF/s"] = gflops;
  state.counters["of peak [%]"] = 100 * gflops / peak;
  state.counters["faults/step"] = static_cast<double>(page_faults() - faults) / steps;
  const MemoryStats memory = memory_stats();
  state.counters["tensors [MiB]"] = static_cast<double>(memory.in_use + memory.kept) / kMega;
}

// Counters: milliseconds of each phase in a step, forward and backward together.
void phases(benchmark::State& state, const Recipe& r, StepOptions options) {
  TrainingStep training(r, options.dtype, options.dropout);
  profile::Profiler::Names names;
  for (const auto& [name, module] : training.model().named_modules()) {
    names.emplace(module, name);
  }
  for (int i = 0; i < 2; ++i) {
    training.draw();
    training.run();
  }
  profile::Profiler profiler(names);
  for (auto _ : state) {
    const profile::Recording recording(&profiler);
    training.draw();
    training.run();
  }
  for (const train::Phase& phase : train::phases_of(profiler.rows())) {
    const int64_t nanoseconds = phase.forward.nanoseconds + phase.backward.nanoseconds;
    state.counters[phase.name + " [ms]"] =
        static_cast<double>(nanoseconds) * 1e-6 / static_cast<double>(state.iterations());
  }
}

struct TextOptions {
  DType dtype;
  int64_t streams;
  int64_t start;   // characters given
  int64_t length;  // characters drawn after them; past the block each needs a whole context
};

void sample(benchmark::State& state, const Recipe& r, TextOptions options) {
  GPT model(r.config);
  model.eval();
  const AutocastGuard autocast(options.dtype);
  const Tensor ids = randint(0, r.config.vocab_size, {options.streams, options.start});
  const LoopTime time;
  for (auto _ : state) {
    benchmark::DoNotOptimize(generate(model, ids, options.length).impl());
  }
  state.counters["characters/s"] =
      static_cast<double>(state.iterations() * options.length * options.streams) / time.seconds();
}

// The likeliest character each time, after one of the text, up to the block's end, as far as memory
// bounds it: "of memory" is the share of the time that reading each weight once would take.
void greedy(benchmark::State& state, const Recipe& r, DType dtype) {
  GPT model(r.config);
  model.eval();
  const AutocastGuard autocast(dtype);
  SamplingOptions likeliest;
  likeliest.temperature = 0;
  const Tensor ids = randint(0, r.config.vocab_size, {1, 1});
  const int64_t length = r.config.block_size - 1;
  generate(model, ids, length, likeliest);
  const double memory = memory_gbytes() * 1e9;
  const LoopTime time;
  for (auto _ : state) {
    benchmark::DoNotOptimize(generate(model, ids, length, likeliest).impl());
  }
  const double seconds = time.seconds();
  const auto characters = static_cast<double>(state.iterations() * length);
  const double bytes = static_cast<double>(model.num_params() * dtype_size(dtype)) * characters;
  state.counters["of memory [%]"] = 100 * bytes / memory / seconds;
  state.counters["characters/s"] = characters / seconds;
}

void add_step(const Recipe& r, StepOptions options) {
  const std::string name = "step/" + r.name + "/" + std::string(dtype_name(options.dtype)) +
                           (options.dropout > 0 ? "/dropout" : "");
  add_for_threads(
      name, [&r, options](benchmark::State& state) { step(state, r, options); },
      [&r](auto* entry) {
        entry->Unit(benchmark::kMillisecond);
        if (r.name == "baby") {
          entry->Iterations(2);
        }
      });
}

void add_phases(const Recipe& r, StepOptions options) {
  const std::string name = "phases/" + r.name + "/" + std::string(dtype_name(options.dtype)) +
                           (options.dropout > 0 ? "/dropout" : "");
  benchmark::RegisterBenchmark(
      name.c_str(), [&r, options](benchmark::State& state) { phases(state, r, options); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(r.name == "baby" ? 2 : 20);
}

void add_sample(const std::string& name, const Recipe& r, TextOptions options) {
  benchmark::RegisterBenchmark(
      name.c_str(), [&r, options](benchmark::State& state) { sample(state, r, options); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

void add_steps() {
  for (const Recipe& r : recipes()) {
    for (const DType dtype : {kFloat32, kBFloat16}) {
      for (const double dropout : {0.0, 0.2}) {
        add_step(r, {dtype, dropout});
        add_phases(r, {dtype, dropout});
      }
    }
    for (const DType dtype : {kFloat32, kBFloat16}) {
      const int64_t block = r.config.block_size;
      const std::string name = "sample/" + r.name + "/" + std::string(dtype_name(dtype));
      add_sample(name + "/within_block", r, {dtype, 1, 1, block - 1});
      add_sample(name + "/within_block_10", r, {dtype, 10, 1, block - 1});
      add_sample(name + "/past_block", r, {dtype, 1, block, 20});
      add_for_threads(
          name + "/greedy", [&r, dtype](benchmark::State& state) { greedy(state, r, dtype); },
          [](auto* entry) { entry->MinTime(1)->Unit(benchmark::kMillisecond); });
    }
  }
}

}  // namespace chargrad::bench
