// bench --scale: how time and memory grow with the sizes of the model and of the text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/storage.h"
#include "tests/bench/families.h"
#include "tests/bench/recipes.h"
#include "train/batches.h"

namespace chargrad::bench {
namespace {

struct Point {
  double size;
  double seconds;  // of processor time
  double bytes;
};

double processor_seconds(const std::function<void()>& f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The exponent e of value ~ size^e: the slope of a straight line through the logarithms.
double exponent(const std::vector<Point>& points, double Point::*value) {
  double x_mean = 0, y_mean = 0, xy = 0, xx = 0;
  const auto n = static_cast<double>(points.size());
  for (const Point& p : points) {
    x_mean += std::log(p.size) / n;
    y_mean += std::log(p.*value) / n;
  }
  for (const Point& p : points) {
    const double x = std::log(p.size) - x_mean;
    xy += x * (std::log(p.*value) - y_mean);
    xx += x * x;
  }
  return xy / xx;
}

void print(const std::string& what, const std::string& unit, const std::vector<Point>& points) {
  std::cout << fmt::format("{}: time ~ size^{:.2f}, memory ~ size^{:.2f}\n", what,
                           exponent(points, &Point::seconds), exponent(points, &Point::bytes));
  for (const Point& p : points) {
    std::cout << fmt::format("  {:<12.0f} {:10.4f} us a {} {:10.2f} MiB\n", p.size, p.seconds * 1e6,
                             unit, p.bytes / (1 << 20));
  }
  std::cout << std::flush;
}

// Of one token in a training step, and what all tensors of the step took at once.
Point step_point(double size, const GPTConfig& config, int64_t batch) {
  release_kept_memory();
  const Recipe recipe = {"scale", config, batch};
  TrainingStep training(recipe, kFloat32, /*dropout=*/0);
  training.run();
  std::vector<double> seconds(5);
  for (double& s : seconds) {
    s = processor_seconds([&] { training.run(); });
  }
  const MemoryStats memory = memory_stats();
  return {size, median(seconds) / static_cast<double>(recipe.tokens()),
          static_cast<double>(memory.in_use + memory.kept)};
}

void scale_model(const std::string& what, const std::vector<int64_t>& sizes,
                 const std::function<void(GPTConfig&, int64_t)>& set) {
  constexpr int64_t kTokens = 1024;  // in every step
  std::vector<Point> points;
  for (const int64_t size : sizes) {
    GPTConfig config = {/*block_size=*/64, /*vocab_size=*/65, /*n_layer=*/2, /*n_head=*/2,
                        /*n_embd=*/64};
    set(config, size);
    points.push_back(step_point(static_cast<double>(size), config, kTokens / config.block_size));
  }
  print(what, "token", points);
}

// Reading a text, by character, and drawing batches of it, by token.
void scale_text(const std::vector<int64_t>& sizes) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("bench_scale." + std::to_string(std::time(nullptr)));
  std::string piece;
  for (int i = 0; piece.size() < 1'000'000; ++i) {
    piece += "line " + std::to_string(i) + " of the text\n";
  }
  piece.resize(1'000'000);
  std::vector<Point> reading, drawing;
  for (const int64_t size : sizes) {
    {
      std::ofstream out(file, std::ios::binary);
      for (int64_t i = 0; i < size; i += 1'000'000) {
        out << piece;
      }
    }
    std::unique_ptr<data::Dataset> dataset;
    const double seconds = processor_seconds(
        [&] { dataset = std::make_unique<data::Dataset>(data::Dataset::load(file.string())); });
    std::filesystem::remove(file);
    const train::Batches batches(*dataset, 64, 256);
    Generator generator;
    const double draws = processor_seconds([&] {
      for (int i = 0; i < 200; ++i) {
        batches.at(data::Split::kTrain, batches.draw(data::Split::kTrain, generator));
      }
    });
    const auto n = static_cast<double>(size);
    const auto kept = static_cast<double>(dataset->size() * dataset->bytes_per_id());
    reading.push_back({n, seconds / n, kept});
    drawing.push_back({n, draws / static_cast<double>(200 * batches.tokens()), kept});
  }
  print("text, reading it", "character", reading);
  print("text, drawing batches", "token", drawing);
}

}  // namespace

void print_scale() {
  scale_model("n_layer", {1, 2, 4, 8}, [](GPTConfig& c, int64_t n) { c.n_layer = n; });
  scale_model("n_embd", {64, 128, 256, 512}, [](GPTConfig& c, int64_t n) { c.n_embd = n; });
  scale_model("block_size", {64, 128, 256, 512, 1024},
              [](GPTConfig& c, int64_t n) { c.block_size = n; });
  scale_model("vocab_size", {64, 256, 1024, 4096},
              [](GPTConfig& c, int64_t n) { c.vocab_size = n; });
  scale_text({1'000'000, 10'000'000, 100'000'000, 1'000'000'000});
}

}  // namespace chargrad::bench
