#include "train/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/kernels/cpu.h"
#include "tests/temp_folder.h"
#include "train/json_file.h"
#include "train/presets.h"

namespace chargrad::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Arguments arguments_of(const Program& program, const SettingList& list,
                       const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"program"};
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  return parse_arguments(program, list, static_cast<int>(argv.size()), argv.data());
}

TrainSettings resolve(
    const std::vector<std::string>& words,
    const RunReader& read_run = [](const std::string&) -> TrainSettings {
      throw std::logic_error("not a resume");
    }) {
  TrainSettings named;
  return resolve_train(arguments_of(train_program(), setting_list(named), words), read_run);
}

SampleSettings resolve_sampling(const std::vector<std::string>& words) {
  SampleSettings named;
  return resolve_sample(arguments_of(sample_program(), setting_list(named), words));
}

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_words(const std::vector<std::string>& words) {
  return error_of([&] { resolve(words); });
}

// What --dtype=auto stands for on this CPU.
std::string fast_dtype() {
  return kernels::has_fast_bfloat16() ? "bfloat16" : "float32";
}

TEST(Resolve, DefaultsAreTheCpuRecipe) {
  TrainSettings expected;
  expected.data = "a.txt";
  expected.dtype = fast_dtype();
  EXPECT_EQ(to_json(resolve({"--data=a.txt"})), to_json(expected));
  EXPECT_EQ(to_json(resolve({"--data=a.txt", "--preset=cpu"})), to_json(expected));
}

TEST(Resolve, EveryPresetResolves) {
  ASSERT_EQ(presets().size(), 5U);
  for (const Preset& preset : presets()) {
    const TrainSettings s = resolve({"--data=a.txt", "--preset=" + preset.name});
    EXPECT_EQ(s.preset, preset.name);
    EXPECT_EQ(s.lr_decay_iters, s.max_iters) << preset.name;
    EXPECT_EQ(s.min_lr, s.learning_rate / 10) << preset.name;
  }
}

TEST(Resolve, PresetsAreTheRecipesThatTheyName) {
  const TrainSettings cpu = resolve({"--data=a.txt", "--preset=cpu"});
  EXPECT_EQ(cpu.n_layer, 4);
  EXPECT_EQ(cpu.n_head, 4);
  EXPECT_EQ(cpu.n_embd, 128);
  EXPECT_EQ(cpu.block_size, 64);
  EXPECT_EQ(cpu.batch_size, 12);
  EXPECT_EQ(cpu.max_iters, 2000);
  EXPECT_EQ(cpu.lr_decay_iters, 2000);
  EXPECT_EQ(cpu.learning_rate, 1e-3);
  EXPECT_EQ(cpu.min_lr, 1e-4);
  EXPECT_EQ(cpu.beta2, 0.99);
  EXPECT_EQ(cpu.dropout, 0.0);
  EXPECT_FALSE(cpu.bias);

  const TrainSettings baby = resolve({"--data=a.txt", "--preset=baby"});
  EXPECT_EQ(baby.n_layer, 6);
  EXPECT_EQ(baby.n_head, 6);
  EXPECT_EQ(baby.n_embd, 384);
  EXPECT_EQ(baby.block_size, 256);
  EXPECT_EQ(baby.batch_size, 64);
  EXPECT_EQ(baby.dropout, 0.2);
  EXPECT_EQ(baby.max_iters, 5000);
  EXPECT_EQ(baby.lr_decay_iters, 5000);
  EXPECT_EQ(baby.eval_iters, 20);

  const TrainSettings bigram = resolve({"--data=a.txt", "--preset=bigram"});
  EXPECT_EQ(bigram.model, "bigram");
  EXPECT_EQ(bigram.learning_rate, 1e-2);

  const TrainSettings head = resolve({"--data=a.txt", "--preset=head"});
  EXPECT_EQ(head.model, "head");
  EXPECT_EQ(head.n_embd, 128);
  EXPECT_EQ(head.head_size, 128);
  EXPECT_EQ(head.learning_rate, 1e-3);
  EXPECT_EQ(head.max_iters, 2000);
}

TEST(Resolve, PresetsNameOnlySettingsOfTheirOwn) {
  for (const Preset& preset : presets()) {
    const Json recipe = parse_json(preset.json, preset.name, Comments::kAllowed);
    for (const char* name : {"data", "out_dir", "preset", "config", "resume", "overwrite",
                             "init_from", "seed", "lr_decay_iters", "min_lr"}) {
      EXPECT_FALSE(recipe.contains(name)) << preset.name << " sets " << name;
    }
  }
}

TEST(Resolve, LaterLayersWin) {
  const TempFolder dir;
  const std::string config = dir.write("c.json", R"({
    // The preset is the file's, its batch size the command line's.
    "preset": "baby", "batch_size": 7, "n_head": 3, "learning_rate": 1, "bias": true,
    "data": "b.txt" /* a text */
  })");
  const TrainSettings s = resolve({"--batch-size", "5", "--config=" + config});
  EXPECT_EQ(s.preset, "baby");
  EXPECT_EQ(s.n_layer, 6);
  EXPECT_EQ(s.n_head, 3);
  EXPECT_EQ(s.batch_size, 5);
  EXPECT_EQ(s.learning_rate, 1.0);
  EXPECT_TRUE(s.bias);
  EXPECT_EQ(s.data, "b.txt");
  EXPECT_EQ(s.config, config);
  const TrainSettings tiny = resolve({"--config=" + config, "--preset=tiny", "--n_head=4"});
  EXPECT_EQ(tiny.preset, "tiny");
  EXPECT_EQ(tiny.n_embd, 32);
  EXPECT_EQ(tiny.n_head, 4);
  EXPECT_EQ(tiny.batch_size, 7);
}

TEST(Resolve, NanoGptsCpuFlagsAreAccepted) {
  const TrainSettings s = resolve({"--data=a.txt", "--device=cpu", "--compile=False",
                                   "--eval_iters=20", "--log_interval=1", "--block_size=64",
                                   "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128",
                                   "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"});
  EXPECT_EQ(to_json(s), to_json(resolve({"--data=a.txt"})));
  EXPECT_EQ(error_of_words({"--data=a", "--compile=True"}),
            "train: --compile=true is not offered: there is nothing to compile");
  EXPECT_EQ(error_of_words({"--data=a", "--device=cuda"}),
            "train: --device=cuda is not supported, only cpu is");
}

TEST(Resolve, WhatNobodyGivesFollowsAnotherSetting) {
  const TrainSettings s =
      resolve({"--data=a", "--max_iters=7", "--learning_rate=0.5", "--n_embd=12", "--n_head=3"});
  EXPECT_EQ(s.lr_decay_iters, 7);
  EXPECT_EQ(s.min_lr, 0.05);
  EXPECT_EQ(s.head_size, 12);
  const TrainSettings given =
      resolve({"--data=a", "--max_iters=7", "--lr_decay_iters=9", "--min_lr=0.25",
               "--learning_rate=0.5", "--model=head", "--head_size=5"});
  EXPECT_EQ(given.lr_decay_iters, 9);
  EXPECT_EQ(given.min_lr, 0.25);
  EXPECT_EQ(given.head_size, 5);
  const TempFolder dir;
  const std::string config = dir.write("c.json", R"({"lr_decay_iters": 11, "min_lr": 1e-5})");
  EXPECT_EQ(resolve({"--data=a", "--max_iters=7", "--config=" + config}).lr_decay_iters, 11);
  EXPECT_EQ(resolve({"--data=a", "--config=" + config}).min_lr, 1e-5);
  // The preset's head size counts as given, and the command line still wins.
  EXPECT_EQ(resolve({"--data=a", "--preset=head", "--n_embd=64"}).head_size, 128);
  EXPECT_EQ(resolve({"--data=a", "--preset=head", "--head_size=16"}).head_size, 16);
  EXPECT_EQ(resolve({"--data=a", "--model=head", "--n_embd=64"}).head_size, 64);
  // A rate of zero is no contradiction.
  EXPECT_EQ(resolve({"--data=a", "--learning_rate=0"}).min_lr, 0.0);
}

TEST(Resolve, RefusesContradictions) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "train: --data=FILE is missing: the text to train on"},
      {{"--data=a", "--n_head=3"}, "train: --n_embd=128 is not a multiple of --n_head=3"},
      {{"--data=a", "--model=head", "--n_head=3"}, "no error"},
      {{"--data=a", "--model=head", "--attention_scale=none"}, "no error"},
      {{"--data=a", "--attention_scale=none"},
       "train: --attention_scale=none is for --model=head, got --model=gpt"},
      {{"--data=a", "--head_size=8"}, "train: --head_size=8 is for --model=head, got --model=gpt"},
      {{"--data=a", "--preset=head", "--model=gpt"}, "no error"},
      {{"--data=a", "--eval_only", "--profile=3"},
       "train: --eval_only makes no training step that --profile could measure"},
      {{"--data=a", "--eval_only", "--overwrite"},
       "train: --eval_only writes nothing, and --overwrite would remove a run"},
      {{"--data=a", "--compile=true"},
       "train: --compile=true is not offered: there is nothing to compile"},
      {{"--data=a", "--min_lr=0.1", "--learning_rate=0.01"},
       "train: --min_lr=0.1 is above --learning_rate=0.01, where the decay starts"},
      {{"--data=a", "--min_lr=0.1", "--learning_rate=0.01", "--decay_lr=false"}, "no error"},
      {{"--data=a", "--warmup_iters=500", "--lr_decay_iters=500"}, "no error"},
      {{"--data=a", "--warmup_iters=5000", "--max_iters=3"}, "no error"},
      {{"--data=a", "--resume", "--init_from=scratch"},
       "train: --resume contradicts --init_from=scratch"},
      {{"--data=a", "--resume=false", "--init_from=resume"},
       "train: --resume=false contradicts --init_from=resume"},
      {{"--resume", "--overwrite"},
       "train: --resume goes on with the run that --overwrite would remove"},
  };
  for (const auto& [words, error] : cases) {
    EXPECT_EQ(error_of_words(words), error);
  }
}

TEST(Resolve, RefusesBadConfigFiles) {
  const TempFolder dir;
  const auto error_with = [&dir](const std::string& text) {
    const std::string path = dir.write("c.json", text);
    std::string error = error_of_words({"--data=a", "--config=" + path});
    const size_t at = error.find(path);
    return at == std::string::npos ? error : error.replace(at, path.size(), "FILE");
  };
  EXPECT_EQ(error_with(R"({"n_layers": 3})"),
            "train: FILE: unknown key n_layers; did you mean n_layer?");
  EXPECT_EQ(error_with(R"({"xyzzy": 3})"), "train: FILE: unknown key xyzzy");
  EXPECT_EQ(error_with(R"({"config": "d.json"})"), "train: FILE: unknown key config");
  EXPECT_EQ(error_with(R"({"n_layer": "3"})"),
            "train: FILE: n_layer=\"3\" is not a whole number in [1, 1024]");
  EXPECT_EQ(error_with(R"({"n_layer": 2.5})"),
            "train: FILE: n_layer=2.5 is not a whole number in [1, 1024]");
  EXPECT_EQ(error_with(R"({"bias": 2})"), "train: FILE: bias=2 is not true, false, 1 or 0");
  EXPECT_EQ(error_with(R"({"bias": 1})"), "no error");
  EXPECT_EQ(error_with(R"({"dtype": null})"), "train: FILE: dtype=null is not a text in quotes");
  EXPECT_EQ(error_with(R"([1])"), "train: FILE: the settings must be a JSON object, got [1]");
  EXPECT_EQ(error_with(R"({"seed": 1, "seed": 2})"), "train: FILE: key \"seed\" is given twice");
  EXPECT_THAT(error_with("{"), StartsWith("train: FILE: parse error at line 1, column 2: "));
  EXPECT_EQ(error_with(R"({"preset": "gpu"})"),
            "train: FILE: preset=\"gpu\" is not one of cpu, baby, tiny, bigram, head");
  // Whatever is wrong with the file, it is what was asked for that cannot be: one exit status.
  EXPECT_EQ(error_of_words({"--data=a", "--config=/no/such.json"}),
            "train: cannot open /no/such.json: No such file or directory");
}

// A run whose every setting differs from the defaults that matter here.
TrainSettings stored_run(const std::string&) {
  TrainSettings run;
  run.data = "a.txt";
  run.preset = "tiny";
  run.n_embd = 32;
  run.n_head = 2;
  run.batch_size = 8;
  run.max_iters = 17;
  run.lr_decay_iters = 17;
  run.seed = 5;
  run.dtype = "float64";
  return run;
}

TEST(Resolve, AResumedRunKeepsItsSettings) {
  std::string asked_for;
  const TrainSettings s = resolve({"--out_dir=run", "--resume"}, [&](const std::string& out_dir) {
    asked_for = out_dir;
    return stored_run(out_dir);
  });
  EXPECT_EQ(asked_for, "run");
  TrainSettings expected = stored_run("");
  expected.out_dir = "run";
  expected.resume = true;
  expected.init_from = "resume";
  EXPECT_EQ(to_json(s), to_json(expected));
  EXPECT_EQ(to_json(resolve({"--out_dir=run", "--init_from=resume"}, stored_run)),
            to_json(expected));
  EXPECT_EQ(
      to_json(resolve({"--out_dir=run", "--resume", "--n_embd=32", "--preset=tiny"}, stored_run)),
      to_json(expected));
}

TEST(Resolve, AResumedRunTakesWhatMayChange) {
  const TempFolder dir;
  const std::string config =
      dir.write("c.json", R"({"resume": true, "max_iters": 30, "batch_size": 9})");
  const TrainSettings s = resolve(
      {"--config=" + config, "--batch_size=10", "--threads=2", "--data=b.txt", "--eval_only"},
      stored_run);
  EXPECT_TRUE(s.resume);
  EXPECT_EQ(s.max_iters, 30);
  EXPECT_EQ(s.batch_size, 10);
  EXPECT_EQ(s.threads, 2);
  EXPECT_EQ(s.data, "b.txt");
  EXPECT_TRUE(s.eval_only);
  // The schedule is the run's: nothing follows another setting here.
  EXPECT_EQ(s.lr_decay_iters, 17);
  EXPECT_EQ(s.n_embd, 32);
}

TEST(Resolve, AResumedRunRefusesAnotherModel) {
  const auto error_with = [](const std::string& flag) {
    return error_of([&] { resolve({"--resume", flag}, stored_run); });
  };
  EXPECT_EQ(error_with("--n_embd=64"),
            "train: --n_embd=64 differs from the run's n_embd=32, which --resume keeps");
  for (const char* flag :
       {"--n_layer=3", "--n_head=4", "--head_size=3", "--block_size=3", "--bias=true",
        "--attention_scale=none", "--model=head", "--seed=6", "--preset=baby"}) {
    EXPECT_THAT(error_with(flag), StartsWith("train: " + std::string(flag) + " differs from "));
  }
  EXPECT_THAT(error_with("--min_lr=1"), HasSubstr("is above --learning_rate=0.001"));
  const TempFolder dir;
  const std::string config = dir.write("c.json", R"({"n_embd": 64})");
  EXPECT_EQ(
      error_with("--config=" + config),
      "train: " + config + ": n_embd=64 differs from the run's n_embd=32, which --resume keeps");
}

TEST(Resolve, AMinimumThatFollowedTheLearningRateFollowsItWhenResumed) {
  const auto run_with = [](double min_lr) {
    return [min_lr](const std::string& out_dir) {
      TrainSettings run = stored_run(out_dir);
      run.min_lr = min_lr * run.learning_rate;
      return run;
    };
  };
  EXPECT_EQ(resolve({"--resume", "--learning_rate=1e-5"}, run_with(0.1)).min_lr, 1e-5 / 10);
  EXPECT_EQ(resolve({"--resume", "--learning_rate=1e-2"}, run_with(0.5)).min_lr, 0.5e-3);
  EXPECT_EQ(resolve({"--resume", "--learning_rate=1e-2", "--min_lr=1e-3"}, run_with(0.1)).min_lr,
            1e-3);
}

// Once a run has begun, auto is what it began with, and so stays on another CPU.
TEST(Resolve, DtypeAutoIsSettledOnce) {
  for (const std::string dtype : {"float32", "float64", "bfloat16"}) {
    EXPECT_EQ(resolve({"--data=a.txt", "--dtype=" + dtype}).dtype, dtype);
    EXPECT_EQ(resolve({"--resume", "--dtype=" + dtype}, stored_run).dtype, dtype);
    EXPECT_EQ(resolve_sampling({"--dtype=" + dtype}).dtype, dtype);
  }
  EXPECT_EQ(resolve({"--data=a.txt", "--dtype=auto"}).dtype, fast_dtype());
  EXPECT_EQ(resolve({"--resume"}, stored_run).dtype, "float64");
  EXPECT_EQ(resolve({"--resume", "--dtype=auto"}, stored_run).dtype, "float64");
  EXPECT_EQ(resolve_sampling({}).dtype, fast_dtype());
}

TEST(Resolve, Sample) {
  const SampleSettings s = resolve_sampling({});
  EXPECT_EQ(s.out_dir, "out");
  EXPECT_EQ(s.checkpoint, "");
  EXPECT_EQ(s.num_samples, 10);
  EXPECT_EQ(s.max_new_tokens, 500);
  EXPECT_EQ(s.temperature, 0.8);
  EXPECT_EQ(s.top_k, 200);
  EXPECT_EQ(s.top_p, 1.0);
  EXPECT_EQ(s.seed, 1337);
  const SampleSettings given = resolve_sampling(
      {"--out-dir=r", "--checkpoint=last", "--prompt", "", "--top-k=0", "--temperature=0"});
  EXPECT_EQ(given.out_dir, "r");
  EXPECT_EQ(given.checkpoint, "last");
  EXPECT_EQ(given.top_k, 0);
  EXPECT_EQ(given.temperature, 0.0);
  EXPECT_EQ(error_of([] { resolve_sampling({"--top_k=-1"}); }),
            "sample: --top_k=-1 is not a whole number in [0, 1048576]");
  EXPECT_EQ(error_of([] { resolve_sampling({"--top_p=1.5"}); }),
            "sample: --top_p=1.5 is not a number in [0, 1]");
}

}  // namespace
}  // namespace chargrad::train
