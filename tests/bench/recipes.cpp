#include "tests/bench/recipes.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/dataset.h"
#include "engine/ops.h"

namespace chargrad::bench {
namespace {

constexpr int64_t kVocabulary = 65;

GPTConfig with_dropout(GPTConfig config, double dropout) {
  config.dropout = dropout;
  return config;
}

optim::AdamWOptions options() {
  optim::AdamWOptions options;
  options.beta2 = 0.99;
  options.weight_decay = 0.1;
  return options;
}

// A million characters, with as many symbols as the recipes' vocabularies have; made once.
const data::Dataset& random_text() {
  static const data::Dataset text = [] {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("bench_text." + std::to_string(getpid()));
    std::string characters;
    Generator generator;
    for (const int64_t id : randint(0, kVocabulary, {1'000'000}, generator).to_vector<int64_t>()) {
      characters += static_cast<char>('0' + id);
    }
    std::ofstream(file, std::ios::binary) << characters;
    data::Dataset dataset = data::Dataset::load(file.string());
    std::filesystem::remove(file);
    return dataset;
  }();
  return text;
}

}  // namespace

double Recipe::step_flops(int64_t parameters) const {
  const auto attention =
      static_cast<double>(12 * config.n_layer * config.n_embd * config.block_size);
  return (6 * static_cast<double>(parameters) + attention) * static_cast<double>(tokens());
}

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"cpu", {/*block_size=*/64, kVocabulary, 4, 4, 128, 0, false}, 12},
      {"baby", {/*block_size=*/256, kVocabulary, 6, 6, 384, 0, false}, 64}};
  return all;
}

const Recipe& recipe(const std::string& name) {
  for (const Recipe& r : recipes()) {
    if (r.name == name) {
      return r;
    }
  }
  detail::fail_check("bench: no recipe is called ", name);
}

TrainingStep::TrainingStep(const Recipe& recipe, DType dtype, double dropout)
    : dtype_(dtype),
      model_(with_dropout(recipe.config, dropout)),
      optimizer_(model_.named_parameters(), options()) {
  const Shape shape{recipe.batch_size, recipe.config.block_size};
  batch_ = {randint(0, recipe.config.vocab_size, shape),
            randint(0, recipe.config.vocab_size, shape)};
}

void TrainingStep::draw() {
  const profile::Scope scope("data");
  const train::Batches batches(random_text(), batch_.inputs.size(0), batch_.inputs.size(1));
  batch_ = batches.at(data::Split::kTrain, batches.draw(data::Split::kTrain, default_generator()));
}

double TrainingStep::run() {
  const profile::Scope step("step");
  Tensor loss;
  {
    const profile::Scope scope("forward");
    const AutocastGuard autocast(dtype_);
    loss = model_.loss(batch_.inputs, batch_.targets);
  }
  const double value = loss.item();
  {
    const profile::Scope scope("backward");
    loss.backward();
  }
  const profile::Scope scope("optimizer");
  optimizer_.step(optim::clip_factor(optim::grad_norm(model_.parameters()), 1.0));
  model_.zero_grad();
  return value;
}

int64_t page_faults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace chargrad::bench
