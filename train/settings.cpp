#include "train/settings.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "train/presets.h"

namespace chargrad::train {

namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr RealRange kNotNegative{0.0, kUnbounded};
constexpr RealRange kSeconds{0.0, 1e9};
constexpr RealRange kMinutes{0.0, 1e7};
constexpr RealRange kUpToOne{0.0, 1.0};
constexpr RealRange kBelowOne{0.0, 1.0, /*includes_high=*/false};

// Bounds that keep products of sizes far below 2^63; no run comes near them.
constexpr int64_t kMostIters = 1'000'000'000'000;
constexpr int64_t kMostRows = 1 << 20;
constexpr int64_t kWidest = 1 << 16;
constexpr int64_t kMostLayers = 1 << 10;
constexpr WholeRange kAnySeed{std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()};

const std::vector<std::string> kAttentionScales = {"sqrt_dk", "none"};
const std::vector<std::string> kDtypes = {"auto", "float32", "float64", "bfloat16"};

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    names.push_back(preset.name);
  }
  return names;
}

void add_files(SettingList& list, TrainSettings& s) {
  list.group("File");
  list.text("data", s.data, "FILE", "Text to train on, UTF-8");
  list.text("out_dir", s.out_dir, "DIR", "Run folder: settings, metrics, checkpoints")
      .asked_each_time();
  list.text("config", s.config, "FILE", "JSON object of settings, with comments; flags win")
      .asked_each_time();
  list.choice("preset", s.preset, preset_names(), "What holds where config and flags say nothing")
      .fixed_on_resume();
  list.choice("init_from", s.init_from, {"scratch", "resume"}, "Start a run or go on with one")
      .asked_each_time();
  list.toggle("resume", s.resume, "Go on from DIR/last, as --init_from=resume").asked_each_time();
  list.toggle("overwrite", s.overwrite, "Start anew in a run folder that is in use")
      .asked_each_time();
}

void add_model(SettingList& list, TrainSettings& s) {
  list.group("Model");
  list.choice("model", s.model, {"gpt", "head", "bigram"}, "What to train").fixed_on_resume();
  list.whole("n_layer", s.n_layer, {1, kMostLayers}, "", "Blocks of a gpt").fixed_on_resume();
  list.whole("n_head", s.n_head, {1, kMostLayers}, "", "Attention heads in a block of a gpt")
      .fixed_on_resume();
  list.whole("n_embd", s.n_embd, {1, kWidest}, "", "Width of the embedding").fixed_on_resume();
  list.whole("head_size", s.head_size, {1, kWidest}, "", "Width of the one head of a head model")
      .defaults_to("as n_embd")
      .fixed_on_resume();
  list.choice("attention_scale", s.attention_scale, kAttentionScales,
              "What divides the scores of a head model")
      .fixed_on_resume();
  list.whole("block_size", s.block_size, {1, kMostRows}, "characters", "Context length")
      .fixed_on_resume();
  list.boolean("bias", s.bias, "Biases in linear layers and norms of a gpt").fixed_on_resume();
  list.real("dropout", s.dropout, kUpToOne, "", "Share of activations dropped in training");
}

void add_training(SettingList& list, TrainSettings& s) {
  list.group("Training");
  list.whole("batch_size", s.batch_size, {1, kMostRows}, "windows", "Size of a micro-step");
  list.whole("gradient_accumulation_steps", s.gradient_accumulation_steps, {1, kMostRows}, "",
             "Micro-steps in an iteration");
  list.whole("max_iters", s.max_iters, {0, kMostIters}, "", "The last iteration, counted from 0");
  list.real("max_seconds", s.max_seconds, kSeconds, "seconds",
            "Stop after this time, between iterations; 0: never");
  list.real("learning_rate", s.learning_rate, kNotNegative, "", "AdamW's step size at its peak");
  list.boolean("decay_lr", s.decay_lr, "Warm up and decay by a cosine; false: constant");
  list.whole("warmup_iters", s.warmup_iters, {0, kMostIters}, "iterations", "Linear warm-up");
  list.whole("lr_decay_iters", s.lr_decay_iters, {0, kMostIters}, "iterations",
             "Where the decay ends")
      .defaults_to("as max_iters");
  list.real("min_lr", s.min_lr, kNotNegative, "", "Learning rate at the end of the decay")
      .defaults_to("learning_rate / 10");
  list.real("weight_decay", s.weight_decay, kNotNegative, "", "On matrices and embeddings only");
  list.real("beta1", s.beta1, kBelowOne, "", "AdamW's decay of the mean gradient");
  list.real("beta2", s.beta2, kBelowOne, "", "AdamW's decay of the mean square");
  list.real("grad_clip", s.grad_clip, kNotNegative, "", "Largest norm of the gradient; 0: any");
  list.whole("skip_nonfinite", s.skip_nonfinite, {0, kMostIters}, "iterations",
             "Pass over up to N updates of the run that are not finite; 0: stop");
}

void add_watching(SettingList& list, TrainSettings& s) {
  list.group("Log");
  list.whole("eval_interval", s.eval_interval, {1, kMostIters}, "iterations",
             "Between evaluations");
  list.whole("eval_iters", s.eval_iters, {1, kMostRows}, "batches", "In an evaluation, each split");
  list.toggle("eval_only", s.eval_only, "Evaluate once and stop").asked_each_time();
  list.whole("log_interval", s.log_interval, {1, kMostIters}, "iterations", "Between loss lines");
  list.real("checkpoint_minutes", s.checkpoint_minutes, kMinutes, "minutes",
            "A checkpoint at least this often; 0: at evaluations only");
  list.whole("profile", s.profile, {0, kMostIters}, "iterations",
             "Measure so many, after three, print where their time goes, write DIR/trace.json; 0: "
             "off")
      .asked_each_time();
}

// What both programs have.
template <class Settings>
void add_machine(SettingList& list, Settings& s) {
  list.group("Machine");
  list.whole("seed", s.seed, kAnySeed, "", "Start of the random numbers, as in PyTorch")
      .fixed_on_resume();
  list.choice("dtype", s.dtype, kDtypes,
              "Number type of products; auto: bfloat16 where it is fast, else float32");
  list.whole("threads", s.threads, {0, 1024}, "", "Results do not depend on it; 0: every core");
  list.choice("device", s.device, {"cpu"}, "There is no other");
  list.boolean("compile", s.compile, "Only false: there is nothing to compile");
}

}  // namespace

SettingList setting_list(TrainSettings& s) {
  SettingList list;
  add_files(list, s);
  add_model(list, s);
  add_training(list, s);
  add_watching(list, s);
  add_machine(list, s);
  return list;
}

SettingList setting_list(SampleSettings& s) {
  SettingList list;
  list.group("File");
  list.text("out_dir", s.out_dir, "DIR", "Run folder that train wrote");
  list.choice("checkpoint", s.checkpoint, {"best", "last"}, "Which of its checkpoints")
      .defaults_to("best, else last");
  list.choice("init_from", s.init_from, {"resume"}, "Only a run of train");
  list.group("Text");
  list.text("prompt", s.prompt, "TEXT|FILE:PATH", "Beginning of every sample")
      .also_called("start")
      .defaults_to("a known character")
      .empty_allowed();
  list.whole("num_samples", s.num_samples, {0, kMostRows}, "", "Samples to draw");
  list.whole("max_new_tokens", s.max_new_tokens, {0, kMostIters}, "characters",
             "Drawn in each sample");
  list.real("temperature", s.temperature, kNotNegative, "",
            "Below 1 favours the likely; 0: only the likeliest");
  list.whole("top_k", s.top_k, {0, kMostRows}, "", "Only the k likeliest characters; 0: all");
  list.real("top_p", s.top_p, kUpToOne, "",
            "Only the likeliest that together reach it; 0: the one");
  add_machine(list, s);
  list.toggle("verbose", s.verbose, "Say more on stderr");
  return list;
}

std::string settings_text(const SettingList& settings) {
  constexpr size_t kLongestPath = 4096;
  std::string text, group;
  for (const Setting& setting : settings) {
    if (setting.group != group) {
      group = setting.group;
      text += fmt::format("{}{}:", text.empty() ? "" : "\n", group);
    }
    text += fmt::format(" {}={}", setting.name, shown(setting.text(), kLongestPath));
  }
  return text + "\n";
}

Json to_json(const TrainSettings& settings) {
  TrainSettings copy = settings;
  return to_json(setting_list(copy));
}

TrainSettings train_settings_from_json(const Json& object, const std::string& where) {
  if (!object.is_object()) {
    throw std::runtime_error(fmt::format("{}: the settings are not a JSON object", where));
  }
  TrainSettings settings;
  for (const Setting& setting : setting_list(settings)) {
    if (setting.on_resume == OnResume::kAsked) {
      continue;
    }
    const auto found = object.find(setting.name);
    if (found == object.end()) {
      throw std::runtime_error(fmt::format("{}: {} is missing", where, setting.name));
    }
    const std::string broken = setting.assign_json(*found);
    if (!broken.empty()) {
      throw std::runtime_error(
          fmt::format("{}: {}={} {}", where, setting.name, shown_json(*found), broken));
    }
  }
  return settings;
}

}  // namespace chargrad::train
