// bench --products: a table of every matrix product of both models, in Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/kernels/cpu.h"
#include "engine/threads.h"
#include "tests/bench/families.h"
#include "tests/bench/gemm_shapes.h"
#include "tests/bench/machine.h"
#include "tests/bench/onednn.h"

namespace chargrad::bench {
namespace {

using Call = std::function<void()>;
using Clock = std::chrono::steady_clock;

// What a column is about.
struct Column {
  DType dtype;
  int threads;

  std::string name() const {
    return fmt::format("{}, {} thread{}", dtype_name(dtype), threads, threads == 1 ? "" : "s");
  }
  bool operator<(const Column& other) const { return name() < other.name(); }
};

std::vector<Column> columns() {
  std::vector<Column> result;
  for (const DType dtype : {kFloat32, kBFloat16}) {
    for (const int threads : std::set<int>{1, num_threads()}) {
      result.push_back({dtype, threads});
    }
  }
  return result;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Long enough that the threads of the other side have gone to sleep.
void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
}

// Seconds of one call, after so many that Linux has spread woken threads over the processors.
double seconds_of(const Call& f, int64_t calls) {
  rest();
  const auto start = Clock::now();
  do {
    f();
  } while (Clock::now() - start < std::chrono::milliseconds(20));
  const LoopTime time;
  for (int64_t i = 0; i < calls; ++i) {
    f();
  }
  return time.seconds() / static_cast<double>(calls);
}

// The same in a thread of its own, with so many of OpenMP's: oneDNN may set up and release the
// tiles of the thread that calls it, and ours keep theirs.
double seconds_apart(const Call& f, int64_t calls, int threads) {
  const auto measure = [&] {
    set_onednn_threads(threads);
    return seconds_of(f, calls);
  };
  return std::async(std::launch::async, measure).get();
}

// The product cut into one of its own for each thread, of some rows of C, with operands of its own:
// they share no line of memory and wait for nobody but at the end. What they lose beside one thread
// the machine takes, what the product loses beside them sharing and waiting.
class Apart {
 public:
  Apart(GemmShape shape, const Column& column) {
    (shape.pass == Pass::kWeightGradient ? shape.out : shape.rows) /= column.threads;
    for (int i = 0; i < column.threads; ++i) {
      parts_.emplace_back(shape, column.dtype);
    }
  }
  void run() {
    parallel_for(static_cast<int64_t>(parts_.size()),
                 [this](int64_t i) { parts_[static_cast<size_t>(i)].run(); });
  }
  double flops() const { return parts_[0].shape().flops() * static_cast<double>(parts_.size()); }

 private:
  std::vector<Gemm> parts_;
};

// Medians of a few rounds; in each ours, apart, then oneDNN's.
struct Figures {
  double gflops = 0;
  double apart = 0;  // the same of Apart; one thread: 0
  double peak = 0;   // measured right before
  double ratio = 0;  // oneDNN's time in ours; 0 without oneDNN

  std::string cell() const {
    const std::string share = fmt::format("{:.0f} %", 100 * gflops / peak);
    return fmt::format("{:.0f} ({}{}){}", gflops, share,
                       apart > 0 ? fmt::format("; apart {:.0f} %", 100 * apart / peak) : "",
                       !has_onednn() ? ""
                       : ratio > 0   ? fmt::format(", {:.2f}", ratio)
                                     : ", -");
  }
};

Figures measure(const GemmShape& shape, const Column& column) {
  constexpr double kSlice = 10e-3;  // seconds
  constexpr int kRounds = 7;
  const Threads threads(column.threads);
  Gemm gemm(shape, column.dtype);
  Apart parts(shape, column);
  rest();
  Figures figures;
  figures.peak = peak_gflops(column.dtype);
  const Call ours = [&gemm] { gemm.run(); }, apart = [&parts] { parts.run(); };
  const Call theirs = onednn_product(gemm);
  const auto calls = static_cast<int64_t>(kSlice / seconds_of(ours, 1)) + 1;
  std::vector<double> seconds, apart_seconds, ratios;
  for (int round = 0; round < kRounds; ++round) {
    seconds.push_back(seconds_of(ours, calls));
    if (column.threads > 1) {
      apart_seconds.push_back(seconds_of(apart, calls));
    }
    if (theirs) {
      ratios.push_back(seconds_apart(theirs, calls, column.threads) / seconds.back());
    }
  }
  figures.gflops = shape.flops() * 1e-9 / median(seconds);
  figures.apart = column.threads > 1 ? parts.flops() * 1e-9 / median(apart_seconds) : 0;
  figures.ratio = theirs ? median(ratios) : 0;
  return figures;
}

// "M N K" of a product C (M, N) = A (M, K) B (K, N).
std::string sizes_of(const GemmShape& s) {
  switch (s.pass) {
    case Pass::kForward:
      return fmt::format("{} {} {}", s.rows, s.out, s.in);
    case Pass::kInputGradient:
      return fmt::format("{} {} {}", s.rows, s.in, s.out);
    case Pass::kWeightGradient:
      break;
  }
  return fmt::format("{} {} {}", s.out, s.in, s.rows);
}

void print_row(const std::vector<std::string>& cells) {
  std::cout << "| " << fmt::format("{}", fmt::join(cells, " | ")) << " |" << std::endl;
}

void print_head() {
  std::cout << fmt::format(
      "Tier {}; GF/s (share of the peak measured right before; of parts that share nothing){}\n\n",
      kernels::tier_name(kernels::active_tier()),
      has_onednn() ? ", oneDNN's time in ours: above 1 ours are faster" : "");
  std::vector<std::string> names = {"product", "M N K"}, lines(2 + columns().size(), "---");
  for (const Column& column : columns()) {
    names.push_back(column.name());
  }
  print_row(names);
  print_row(lines);
}

}  // namespace

void print_products(const std::string& what) {
  std::vector<std::pair<std::string, GemmShape>> shapes;
  for (const Recipe& recipe : recipes()) {
    for (const GemmShape& shape : gemm_shapes(recipe)) {
      const std::string name = recipe.name + "/" + shape.name;
      if (name.find(what) != std::string::npos) {
        shapes.emplace_back(name, shape);
      }
    }
  }
  CHARGRAD_CHECK(!shapes.empty(), "--products: no product's name holds '", what, "'");
  print_head();
  std::map<Column, std::vector<double>> peaks;
  for (const auto& [name, shape] : shapes) {
    std::vector<std::string> cells = {name, sizes_of(shape)};
    for (const Column& column : columns()) {
      const Figures f = measure(shape, column);
      peaks[column].push_back(f.peak);
      cells.push_back(f.cell());
    }
    print_row(cells);
  }
  std::vector<std::string> cells = {"peak, median", ""};
  for (const auto& column : columns()) {
    cells.push_back(peaks[column].empty() ? "-" : fmt::format("{:.0f}", median(peaks[column])));
  }
  print_row(cells);
}

}  // namespace chargrad::bench
