// The training loop: nanoGPT's, with checkpoints that continue it bit for bit.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "train/batches.h"
#include "train/metrics.h"
#include "train/model_file.h"
#include "train/optim/adamw.h"
#include "train/optim/schedule.h"
#include "train/run_folder.h"
#include "train/settings.h"
#include "train/trainer_state.h"

namespace chargrad::train {

// What the loop tells while it runs; each may be empty.
struct TrainEvents {
  std::function<void(const IterMetrics&)> on_iter;  // every log_interval iterations
  std::function<void(const EvalMetrics&)> on_eval;
  // 0, or the signal that asks for a stop.
  std::function<int()> stop_signal;
};

enum class StopReason { kFinished, kTimeIsUp, kSignal };

// One run over one text. The random numbers come from the default generator, in the order of
// nanoGPT: parameters, the first batch, then in each iteration the batches of an evaluation and,
// after each forward pass, the next training batch.
class Trainer {
 public:
  // A new run: seeds the default generator and draws the parameters.
  // Requires: the dataset outlives this.
  Trainer(const TrainSettings& settings, const data::Dataset& dataset, TrainEvents events);
  // Goes on from a checkpoint. Throws std::runtime_error where its model or vocabulary is not
  // that of the settings and the text.
  static Trainer resume(const TrainSettings& settings, const data::Dataset& dataset,
                        const std::filesystem::path& checkpoint, TrainEvents events);

  // Iterations until max_iters is done, max_seconds are over or a signal asks for a stop; saves
  // into the folder at each evaluation, every checkpoint_minutes, and at the end whatever the
  // reason.
  // Throws std::runtime_error at a loss that is not finite: what was saved last remains.
  StopReason run(RunFolder& folder);

  // One evaluation of the present parameters that changes nothing.
  EvalMetrics evaluate_only();

  int64_t next_iter() const { return state_.next_iter; }
  bool eval_done() const { return state_.eval_done; }
  const LanguageModel& model() const { return *model_; }

 private:
  // Where one call of run() writes.
  struct Output {
    RunFolder& folder;
    MetricsFile metrics;
  };

  Trainer(const TrainSettings& settings, const data::Dataset& dataset, TrainEvents events,
          LoadedModel loaded);

  bool at_evaluation() const;
  // Mean losses over eval_iters batches of each split, drawn from `generator`; nothing when a
  // signal comes in between.
  std::optional<EvalMetrics> evaluate(Generator& generator);
  void regular_evaluation(Output& output);
  // The loss, its gradients and one update; draws the next batch.
  void step(Output& output);
  double accumulate_gradients();
  Tensor loss(const Batch& batch) const;
  void save(Output& output, bool is_best);
  void save_if_changed(Output& output);
  bool stopped() const { return events_.stop_signal && events_.stop_signal() != 0; }

  TrainSettings settings_;
  const data::Dataset& dataset_;
  TrainEvents events_;
  Batches batches_;
  ModelConfig config_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<optim::AdamW> optimizer_;
  optim::Schedule schedule_;
  TrainerState state_;
  std::optional<std::pair<int64_t, bool>> saved_;  // next_iter and eval_done of the last save
};

}  // namespace chargrad::train
