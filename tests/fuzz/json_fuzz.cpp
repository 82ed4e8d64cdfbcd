// Any text as one of a run's JSON files, the first byte says which: refused, or read.
#include <filesystem>

#include "engine/ops.h"
#include "models/generate.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/temp_folder.h"
#include "train/json_file.h"
#include "train/metrics.h"
#include "train/run_settings.h"
#include "train/trainer.h"

namespace {

using namespace chargrad;
using namespace chargrad::train;

// A checkpoint whose files the inputs replace one at a time.
class Checkpoint {
 public:
  Checkpoint() {
    manual_seed(1);
    model_ = make_model(config_, default_generator());
    optimizer_ = std::make_unique<optim::AdamW>(model_->named_parameters(), optim::AdamWOptions());
    write_model(dir_.path(), config_, data::Vocab::from_text("abc"), *model_);
    TrainerState state;
    state.batch = {1, 2};
    write_trainer(dir_.path(), state, *optimizer_, default_generator());
  }

  void use(int kind, const std::string& text) {
    static const char* const kNames[] = {"config.json",   "vocab.json",    "trainer.json",
                                         "settings.json", "metrics.jsonl", "my.json"};
    const std::string name = kNames[kind], before = dir_.read(name);
    const std::string path = dir_.write(name, text);
    fuzz::expect_value_or_error([&] {
      if (kind < 2) {
        LoadedModel loaded = read_model(dir_.path());
        loaded.model->eval();
        generate(*loaded.model, zeros({1, 1}, kInt64), 2, {0, 0, 1});
      } else if (kind == 2) {
        Generator generator;
        const TrainerState state = read_trainer(dir_.path(), 100, *optimizer_, generator);
        fuzz::require(state.next_iter >= 0 && !state.batch.empty());
      } else if (kind == 3) {
        read_run_settings(path);
      } else if (kind == 4) {
        cut_metrics(path, 3, true);
      } else {
        read_json_file(path, Comments::kAllowed);
      }
    });
    dir_.write(name, before);
  }

 private:
  TempFolder dir_;
  ModelConfig config_{"gpt", 3, 4, 1, 2, 4, 1, "sqrt_dk", 0.0, false};
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<optim::AdamW> optimizer_;
};

}  // namespace

// libFuzzer asks for this name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Checkpoint checkpoint;
  if (size > 0) {
    checkpoint.use(data[0] % 6, std::string(fuzz::bytes_of(data + 1, size - 1)));
  }
  return 0;
}
