#include "train/head_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/ops.h"
#include "models/bigram.h"
#include "models/head_lm.h"
#include "tests/temp_folder.h"
#include "train/trainer.h"

namespace chargrad::train {
namespace {

const Tensor kInputs = tensor({{1, 2, 3}, {4, 0, 1}}, kInt64);
const Tensor kTargets = tensor({{2, 3, 5}, {0, 1, 2}}, kInt64);

TEST(HeadMetrics, EqualWeightsHaveTheLargestEntropy) {
  Generator generator(3);
  HeadLM model(7, 6, 4, 5, generator);
  fill_(model.sa_head.query.weight.detach(), 0);
  const auto metrics = head_metrics(model, kInputs, kTargets);
  ASSERT_TRUE(metrics);
  // Rows of 1, 2 and 3 equal weights.
  EXPECT_NEAR(metrics->attention_entropy, (std::log(2) + std::log(3)) / 3, 1e-6);
  // With queries of zero no gradient reaches the keys.
  EXPECT_EQ(metrics->grad_norm_key, 0);
  EXPECT_GT(metrics->grad_norm_query, 0);
}

TEST(HeadMetrics, NormsAreThoseOfTheLossAndNothingIsTouched) {
  Generator generator(3);
  HeadLM model(7, 6, 4, 5, generator);
  const std::vector<uint8_t> state = default_generator().get_state();
  const auto metrics = head_metrics(model, kInputs, kTargets);
  ASSERT_TRUE(metrics);
  EXPECT_EQ(default_generator().get_state(), state);
  for (const Tensor& parameter : model.parameters()) {
    EXPECT_FALSE(parameter.grad().defined());
  }
  model.loss(kInputs, kTargets).backward();
  const auto norm = [](const Tensor& g) { return std::sqrt(sum(g * g).item()); };
  EXPECT_NEAR(metrics->grad_norm_query, norm(model.sa_head.query.weight.grad()), 1e-7);
  EXPECT_NEAR(metrics->grad_norm_key, norm(model.sa_head.key.weight.grad()), 1e-7);
  EXPECT_GT(metrics->grad_norm_key, 1e-4);
}

TEST(HeadMetrics, NothingOfAnotherModel) {
  EXPECT_FALSE(head_metrics(BigramLM(7, 5), kInputs, kTargets));
}

// Runs of a tiny model; the evaluation lines of their metrics.
std::vector<nlohmann::json> evaluations(const TempFolder& dir, const std::string& name,
                                        const TrainSettings& settings) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "line " + std::to_string(i * 7919 % 1000) + "\n";
  }
  const data::Dataset dataset = data::Dataset::load(dir.write(name + ".txt", text));
  RunFolder folder = RunFolder::start(dir.path(name), false);
  Trainer(settings, dataset, {}).run(folder);
  std::ifstream file(folder.metrics_file());
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object["kind"] == "eval") {
      found.push_back(object);
    }
  }
  return found;
}

TrainSettings tiny_head() {
  TrainSettings s;
  s.model = "head";
  s.n_embd = 16;
  s.head_size = 64;
  s.block_size = 8;
  s.batch_size = 4;
  s.max_iters = 4;
  s.eval_interval = 2;
  s.eval_iters = 1;
  return s;
}

TEST(HeadMetrics, EvaluationLinesOfAHeadModelHaveThem) {
  const TempFolder dir;
  TrainSettings settings = tiny_head();
  const auto scaled = evaluations(dir, "scaled", settings);
  settings.attention_scale = "none";
  const auto raw = evaluations(dir, "raw", settings);
  ASSERT_EQ(scaled.size(), 3u);
  ASSERT_EQ(raw.size(), 3u);
  for (const auto* lines : {&scaled, &raw}) {
    for (const auto& line : *lines) {
      EXPECT_GT(line["attention_entropy"].get<double>(), 0);
      EXPECT_GT(line["grad_norm_query"].get<double>(), 0);
      EXPECT_GT(line["grad_norm_key"].get<double>(), 0);
    }
  }
  // The same parameters at the start: what differs is the scale.
  EXPECT_LT(raw[0]["attention_entropy"].get<double>(),
            scaled[0]["attention_entropy"].get<double>());

  settings.model = "bigram";
  for (const auto& line : evaluations(dir, "bigram", settings)) {
    EXPECT_FALSE(line.contains("attention_entropy"));
  }
}

TEST(HeadMetrics, ModelFilesKeepTheScale) {
  const TempFolder dir;
  TrainSettings settings = tiny_head();
  settings.attention_scale = "none";
  evaluations(dir, "run", settings);
  const std::filesystem::path last = std::filesystem::path(dir.path("run")) / "last";
  EXPECT_EQ(read_model(last).config.attention_scale, "none");
  const std::filesystem::path config = last / "config.json";
  nlohmann::json object = nlohmann::json::parse(std::ifstream(config));
  object["attention_scale"] = "sqrt";
  std::ofstream(config) << object;
  try {
    read_model(last);
    ADD_FAILURE() << "read a scale that there is not";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(),
                testing::EndsWith(
                    "config.json: attention_scale must be one of sqrt_dk, none, got \"sqrt\""));
  }
}

}  // namespace
}  // namespace chargrad::train
