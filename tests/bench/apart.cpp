// bench --apart: what two threads could do at best. Beside each product cut in two by our kernels,
// its two halves as products of their own, each on one thread with its own copies of the operands:
// they share no line of memory and wait for nobody but at the end. What they lose against one
// thread is the machine's (memory, last cache, clock), what ours lose against them is sharing and
// waiting.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "engine/threads.h"
#include "tests/bench/families.h"
#include "tests/bench/gemm_shapes.h"
#include "tests/bench/machine.h"

namespace chargrad::bench {
namespace {

// The part of a product that one of `parts` threads has: some rows of C.
GemmShape part_of(GemmShape shape, int64_t parts) {
  (shape.pass == Pass::kWeightGradient ? shape.out : shape.rows) /= parts;
  return shape;
}

// Seconds of one call, `threads` of them set, after a warm-up.
double seconds_of(const std::function<void()>& f, int threads, int64_t calls) {
  const Threads guard(threads);
  for (int64_t i = 0; i < calls / 2 + 1; ++i) {
    f();
  }
  const LoopTime time;
  for (int64_t i = 0; i < calls; ++i) {
    f();
  }
  return time.seconds() / static_cast<double>(calls);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double peak_of(DType dtype, int threads) {
  const Threads guard(threads);
  return peak_gflops(dtype);
}

void compare(const std::string& name, const GemmShape& shape, DType dtype, int threads) {
  constexpr double kSlice = 20e-3;  // seconds
  constexpr int kRounds = 9;
  Gemm whole(shape, dtype);
  std::vector<Gemm> parts;
  for (int i = 0; i < threads; ++i) {
    parts.emplace_back(part_of(shape, threads), dtype);
  }
  const auto joint = [&] { whole.run(); };
  const auto one = [&] { parts[0].run(); };
  const auto apart = [&] {
    parallel_for(threads, [&](int64_t i) { parts[static_cast<size_t>(i)].run(); });
  };
  const auto calls = static_cast<int64_t>(kSlice / seconds_of(joint, threads, 1)) + 1;
  std::vector<double> joint_seconds, one_seconds, apart_seconds, peaks, single_peaks;
  for (int round = 0; round < kRounds; ++round) {
    peaks.push_back(peak_of(dtype, threads));
    joint_seconds.push_back(seconds_of(joint, threads, calls));
    apart_seconds.push_back(seconds_of(apart, threads, calls));
    single_peaks.push_back(peak_of(dtype, 1));
    one_seconds.push_back(seconds_of(one, 1, calls));
  }
  const double gflop = shape.flops() * 1e-9, peak = median(peaks);
  std::cout << fmt::format("{:36} {:8.1f} {:6.1f} {:6.1f} {:6.1f}", name,
                           median(joint_seconds) * 1e6, 100 * gflop / median(joint_seconds) / peak,
                           100 * gflop / median(apart_seconds) / peak,
                           100 * gflop / threads / median(one_seconds) / median(single_peaks))
            << std::endl;
}

}  // namespace

void print_apart(const std::string& what) {
  const int threads = num_threads();
  // Long enough that nobody is done before all have begun.
  const auto work = [](int64_t) { multiply_add_rounds(10'000); };
  const double together = seconds_of([&] { parallel_for(threads, work); }, threads, 1000);
  const double alone = seconds_of([&] { work(0); }, threads, 1000);
  std::cout << fmt::format("parallel_for adds {:.2f} us to {:.2f}\n", (together - alone) * 1e6,
                           alone * 1e6)
            << fmt::format("{:36} {:>8} {:>6} {:>6} {:>6}\n", "us; % of the peak", "us", "joint",
                           "apart", "one");
  for (const Recipe& recipe : recipes()) {
    for (const DType dtype : {kFloat32, kBFloat16}) {
      for (const GemmShape& shape : gemm_shapes(recipe)) {
        const std::string name =
            fmt::format("{}/{}/{}", recipe.name, dtype_name(dtype), shape.name);
        if (name.find(what) != std::string::npos) {
          compare(name, shape, dtype, threads);
        }
      }
    }
  }
}

}  // namespace chargrad::bench
