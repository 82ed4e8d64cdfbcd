// The machine itself: multiply-add and bfloat16 peak, memory and L2 read bandwidth.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "engine/kernels/cpu.h"
#include "engine/ops.h"
#include "engine/threads.h"
#include "tests/bench/families.h"
#include "tests/bench/machine.h"

namespace chargrad::bench {
namespace {

constexpr int64_t kRounds = 200'000;  // about a millisecond

// Larger than any last cache that a virtual machine is given.
constexpr int64_t kMemoryFloats = int64_t{64} << 20;
constexpr int64_t kChunkFloats = int64_t{1} << 20;
// Half of a second cache of 512 KiB.
constexpr int64_t kL2Floats = int64_t{64} << 10;
constexpr int kL2Repeats = 100;

using Rounds = double (*)(int64_t);

// Returns the operations of all threads.
double run_on_all_threads(Rounds function) {
  std::atomic<double> flops{0};
  parallel_for(num_threads(), [&](int64_t) {
    const double mine = function(kRounds);
    double sum = flops;
    while (!flops.compare_exchange_weak(sum, sum + mine)) {
    }
  });
  return flops;
}

template <Rounds kFunction>
void peak(benchmark::State& state) {
  double flops = 0;
  const LoopTime time;
  for (auto _ : state) {
    flops += run_on_all_threads(kFunction);
  }
  state.counters["GF/s"] = flops / time.seconds() * 1e-9;
}

double best_gflops(Rounds function) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    const auto start = Clock::now();
    const double flops = run_on_all_threads(function);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, flops / seconds / 1e9);
  }
  return best;
}

void read_memory(const Tensor& x) {
  parallel_for(kMemoryFloats / kChunkFloats, [&](int64_t chunk) {
    benchmark::DoNotOptimize(read_floats(x.data<float>() + chunk * kChunkFloats, kChunkFloats));
  });
}

// Of reading so many floats in each iteration.
void set_speed(benchmark::State& state, int64_t floats, const LoopTime& time) {
  state.counters["GB/s"] = static_cast<double>(state.iterations() * floats) * 4e-9 / time.seconds();
}

void memory_read(benchmark::State& state) {
  const Tensor x = zeros({kMemoryFloats});
  const LoopTime time;
  for (auto _ : state) {
    read_memory(x);
  }
  set_speed(state, kMemoryFloats, time);
}

void l2_read(benchmark::State& state) {
  const int count = num_threads();
  const Tensor x = zeros({count, kL2Floats});
  const LoopTime time;
  for (auto _ : state) {
    parallel_for(count, [&](int64_t chunk) {
      for (int i = 0; i < kL2Repeats; ++i) {
        benchmark::DoNotOptimize(read_floats(x.data<float>() + chunk * kL2Floats, kL2Floats));
      }
    });
  }
  set_speed(state, kL2Floats * kL2Repeats * count, time);
}

}  // namespace

void add_machine() {
  using Function = void (*)(benchmark::State&);
  const std::pair<const char*, Function> all[] = {
      {"machine/multiply_add", peak<multiply_add_rounds>},
      {"machine/memory_read", memory_read},
      {"machine/l2_read", l2_read}};
  const auto settings = [](auto* entry) { entry->MinTime(0.2)->Unit(benchmark::kMillisecond); };
  for (const auto& [name, function] : all) {
    add_for_threads(name, function, settings);
  }
  if (kernels::has_fast_bfloat16()) {
    add_for_threads("machine/bfloat16", peak<bfloat16_rounds>, settings);
  }
}

double peak_gflops(DType dtype) {
  return best_gflops(dtype == kBFloat16 && kernels::has_fast_bfloat16() ? &bfloat16_rounds
                                                                        : &multiply_add_rounds);
}

double memory_gbytes() {
  const Tensor x = zeros({kMemoryFloats});
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const LoopTime time;
    read_memory(x);
    best = std::max(best, static_cast<double>(kMemoryFloats) * 4e-9 / time.seconds());
  }
  return best;
}

double LoopTime::seconds() const {
  return num_threads() == 1 ? static_cast<double>(std::clock() - processor_) / CLOCKS_PER_SEC
                            : std::chrono::duration<double>(Clock::now() - start_).count();
}

Threads::Threads(int count) {
  set_num_threads(count);
}
Threads::~Threads() {
  set_num_threads(0);
}

void add_for_threads(const std::string& name, const std::function<void(benchmark::State&)>& f,
                     const std::function<void(benchmark::internal::Benchmark*)>& settings) {
  std::vector<int> counts = {1};
  if (num_threads() > 1) {
    counts.push_back(num_threads());
  }
  for (const int count : counts) {
    const std::string full_name = name + "/threads:" + std::to_string(count);
    auto* const entry =
        benchmark::RegisterBenchmark(full_name.c_str(), [f, count](benchmark::State& state) {
          const Threads threads(count);
          f(state);
        });
    settings(entry);
    if (count > 1) {
      entry->UseRealTime();
    }
  }
}

}  // namespace chargrad::bench
