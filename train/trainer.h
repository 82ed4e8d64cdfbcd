// The training loop: nanoGPT's, with checkpoints that continue it bit for bit.
#pragma once

#include <functional>
#include <map>
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
#include "train/step_profile.h"
#include "train/trainer_state.h"

namespace chargrad::train {

// What the loop tells while it runs; each may be empty.
struct TrainEvents {
  std::function<void(const IterMetrics&)> on_iter;  // every log_interval iterations
  std::function<void(const EvalMetrics&)> on_eval;
  // The tables of --profile, once, and where the trace is; "" where it could not be written.
  std::function<void(const std::string& text, const std::filesystem::path& trace)> on_profile;
  // One sentence about something that went wrong and was survived.
  std::function<void(const std::string&)> on_warning;
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
  // A save or a metrics line that fails is told by on_warning, and the run goes on; throws
  // std::runtime_error where the last save failed, and at a loss or gradient that is not finite
  // once skip_nonfinite of them are passed over. What was saved before remains.
  StopReason run(RunFolder& folder);

  // One evaluation of the present parameters that changes nothing. Throws std::runtime_error where
  // a loss is not finite.
  EvalMetrics evaluate_only();

  int64_t next_iter() const { return state_.next_iter; }
  bool eval_done() const { return state_.eval_done; }
  // The lowest validation loss of a regular evaluation that was saved, if there was one.
  std::optional<double> best_val_loss() const { return state_.best_val_loss; }
  // What the folder holds, where that is not what the checkpoint said; none: the next evaluation
  // is the best.
  void set_best_val_loss(std::optional<double> loss) { state_.best_val_loss = loss; }
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
  // Of the batch that comes next.
  std::optional<HeadMetrics> measure_head() const;
  void regular_evaluation(Output& output);
  // The loss, its gradients and one update; draws the next batch.
  void step(Output& output);
  double accumulate_gradients();
  Tensor loss(const Batch& batch) const;
  // Says what was not finite, naming the first op that made it; throws if that is once too often.
  void handle_nonfinite(double mean_loss, double norm, const RunFolder& folder);
  std::string first_nonfinite_op();
  // What `last` holds, for the end of a message.
  std::string what_is_kept(const RunFolder& folder) const;
  // Saves what is not yet; throws where something of the run is not on the disk as it should be.
  void finish(Output& output);
  // Tells of the profile, if one was measured, and ends it.
  void finish_profile(Output& output);
  // Not a model whose loss is not finite: the one before it is worth more.
  void save(Output& output);
  // Whether the loss of the model as it is now is finite, on the batch that comes next.
  bool has_finite_loss() const;
  // "" if the model may be saved.
  std::string why_not_to_save() const;
  void save_if_changed(Output& output);
  void clean(Output& output);
  bool is_saved(const RunFolder& folder) const;
  // Runs f and returns whether it succeeded; a failure is told by on_warning, unless one of the
  // same subject, or in the same words, was told and has not succeeded since.
  bool attempt(const std::string& subject, const std::function<void()>& f);
  void warn(const std::string& message) const;
  bool stopped() const { return events_.stop_signal && events_.stop_signal() != 0; }

  TrainSettings settings_;
  const data::Dataset& dataset_;
  TrainEvents events_;
  Batches batches_;
  ModelConfig config_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<optim::AdamW> optimizer_;
  optim::Schedule schedule_;
  std::unique_ptr<StepProfile> profile_;  // null without --profile, and after it
  TrainerState state_;
  // What each micro-step of this iteration began with.
  struct MicroStep {
    std::vector<int64_t> batch;
    uint64_t dropout_calls;
  };
  std::vector<MicroStep> micro_steps_;
  std::map<std::string, std::string> told_;  // failures by their subjects
  bool best_is_linked_ = true;
  bool eval_is_finite_ = true;  // of the evaluation of the model as it is now, if there was one
  std::optional<std::pair<int64_t, bool>> saved_;  // next_iter and eval_done of the last save
};

}  // namespace chargrad::train
