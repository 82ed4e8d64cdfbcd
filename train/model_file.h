// A model as files: config.json (what it is), vocab.json (its symbols), model.safetensors (its
// numbers, under nanoGPT's parameter names). What sample needs, and no more.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/vocab.h"
#include "engine/generator.h"
#include "models/language_model.h"
#include "train/settings.h"

namespace chargrad::train {

// What a model is made from. Fields that its kind does not have keep their defaults.
struct ModelConfig {
  std::string model = "gpt";  // gpt, head or bigram
  int64_t vocab_size = 1;
  int64_t block_size = 1;
  int64_t n_layer = 1;
  int64_t n_head = 1;
  int64_t n_embd = 1;
  int64_t head_size = 1;
  std::string attention_scale = "sqrt_dk";  // or none; of a head model
  double dropout = 0;
  bool bias = false;

  bool operator==(const ModelConfig&) const = default;
};

ModelConfig model_config(const TrainSettings& settings, int64_t vocab_size);

// A fresh model: a GPT with GPT-2's initialisation, the others with PyTorch's.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, Generator& generator);

// Writes the three files into `folder`, which exists.
void write_model(const std::filesystem::path& folder, const ModelConfig& config,
                 const data::Vocab& vocab, const LanguageModel& model);

// Reads of untrusted files; std::runtime_error names the file and what is wrong with it.
struct LoadedModel {
  ModelConfig config;
  data::Vocab vocab;
  std::unique_ptr<LanguageModel> model;
};
LoadedModel read_model(const std::filesystem::path& folder);

}  // namespace chargrad::train
