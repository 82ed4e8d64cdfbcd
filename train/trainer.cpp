#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/anomaly.h"
#include "engine/autocast.h"
#include "engine/ops.h"
#include "train/console.h"

namespace chargrad::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The type of the parameters; bfloat16 runs keep them in float32.
DType parameter_dtype(const TrainSettings& settings) {
  return settings.dtype == "float64" ? kFloat64 : kFloat32;
}

DType product_dtype(const TrainSettings& settings) {
  return settings.dtype == "bfloat16" ? kBFloat16 : parameter_dtype(settings);
}

// f(), as a part of the step that --profile shows.
template <class F>
auto in_scope(std::string_view name, const F& f) {
  const profile::Scope scope(name);
  return f();
}

LoadedModel fresh_model(const TrainSettings& settings, const data::Vocab& vocab) {
  manual_seed(static_cast<uint64_t>(settings.seed));
  const ModelConfig config = model_config(settings, vocab.size());
  return {config, vocab, make_model(config, default_generator())};
}

// The name of a weight with a NaN or an infinity; "" without any.
std::string non_finite_weight(const nn::Module& model) {
  for (const auto& [name, tensor] : model.state_dict()) {
    if (any_non_finite(tensor)) {
      return name;
    }
  }
  return "";
}

// While alive, the model is in evaluation mode.
class EvalMode {
 public:
  explicit EvalMode(LanguageModel& model) : model_(model) { model_.eval(); }
  ~EvalMode() { model_.train(); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  LanguageModel& model_;
};

}  // namespace

Trainer::Trainer(const TrainSettings& settings, const data::Dataset& dataset, TrainEvents events,
                 LoadedModel loaded)
    : settings_(settings),
      dataset_(dataset),
      events_(std::move(events)),
      batches_(dataset, settings.batch_size, settings.block_size),
      config_(loaded.config),
      model_(std::move(loaded.model)),
      schedule_{settings.learning_rate, settings.min_lr, settings.warmup_iters,
                settings.lr_decay_iters, settings.decay_lr} {
  model_->to(parameter_dtype(settings_));
  optim::AdamWOptions options;
  options.beta1 = settings_.beta1;
  options.beta2 = settings_.beta2;
  options.weight_decay = settings_.weight_decay;
  optimizer_ = std::make_unique<optim::AdamW>(model_->named_parameters(), options);
  if (settings_.profile > 0) {
    profile_ = std::make_unique<StepProfile>(settings_.profile, *model_);
  }
}

Trainer::Trainer(const TrainSettings& settings, const data::Dataset& dataset, TrainEvents events)
    : Trainer(settings, dataset, std::move(events), fresh_model(settings, dataset.vocab())) {
  state_.batch = batches_.draw(data::Split::kTrain, default_generator());
}

Trainer Trainer::resume(const TrainSettings& settings, const data::Dataset& dataset,
                        const std::filesystem::path& checkpoint, TrainEvents events) {
  LoadedModel loaded = read_model(checkpoint);
  if (!(loaded.vocab == dataset.vocab())) {
    throw std::runtime_error(fmt::format("{}: its {} symbols are not the {} of the text {}",
                                         (checkpoint / "vocab.json").string(), loaded.vocab.size(),
                                         dataset.vocab().size(), settings.data));
  }
  const ModelConfig wanted = model_config(settings, dataset.vocab().size());
  loaded.config.dropout = wanted.dropout;  // may change within a run
  if (!(loaded.config == wanted)) {
    throw std::runtime_error(fmt::format("{}: not the model that the run's settings describe",
                                         (checkpoint / "config.json").string()));
  }
  Generator unused;
  const nn::NamedTensors tensors = loaded.model->state_dict();
  if (const std::string name = non_finite_weight(*loaded.model); !name.empty()) {
    throw std::runtime_error(fmt::format("{}: {} holds a NaN or an infinity",
                                         shown_path(checkpoint / "model.safetensors"), name));
  }
  const DType dtype = tensors.front().second.dtype();
  loaded.model = make_model(wanted, unused);
  loaded.model->to(dtype);
  loaded.model->load_state_dict(tensors);
  Trainer trainer(settings, dataset, std::move(events), std::move(loaded));
  trainer.state_ =
      read_trainer(checkpoint, dataset.window_count(data::Split::kTrain, settings.block_size),
                   *trainer.optimizer_, default_generator());
  if (static_cast<int64_t>(trainer.state_.batch.size()) != settings.batch_size) {
    trainer.state_.batch = trainer.batches_.draw(data::Split::kTrain, default_generator());
  }
  trainer.saved_ = {trainer.state_.next_iter, trainer.state_.eval_done};
  return trainer;
}

bool Trainer::at_evaluation() const {
  return state_.next_iter % settings_.eval_interval == 0 && !state_.eval_done;
}

StopReason Trainer::run(RunFolder& folder) {
  const auto start = Clock::now();
  auto last_save = start;
  Output output{folder, MetricsFile(folder.metrics_file(),
                                    [&folder] { folder.claim(folder.metrics_file()); })};
  StopReason reason = StopReason::kFinished;
  while (state_.next_iter <= settings_.max_iters) {
    if (at_evaluation()) {
      regular_evaluation(output);
      last_save = Clock::now();
    }
    if (stopped()) {
      reason = StopReason::kSignal;
      break;
    }
    if (settings_.max_seconds > 0 && seconds_since(start) >= settings_.max_seconds) {
      reason = StopReason::kTimeIsUp;
      break;
    }
    if (settings_.checkpoint_minutes > 0 &&
        seconds_since(last_save) >= 60 * settings_.checkpoint_minutes) {
      attempt("metrics", [&] { output.metrics.sync(); });
      save_if_changed(output);
      last_save = Clock::now();
    }
    step(output);
    if (profile_ && profile_->done()) {
      finish_profile(output);
    }
  }
  finish(output);
  return reason;
}

void Trainer::finish(Output& output) {
  RunFolder& folder = output.folder;
  const auto sync = [&] { return attempt("metrics", [&] { output.metrics.sync(); }); };
  bool metrics_are_whole = sync();
  save_if_changed(output);
  finish_profile(output);
  metrics_are_whole = metrics_are_whole || sync();  // what was in the way may be gone
  if (!is_saved(folder)) {
    throw std::runtime_error("the last checkpoint could not be saved" + what_is_kept(folder));
  }
  if (!attempt("settings", [&folder] { folder.write_settings(); })) {
    throw std::runtime_error(
        fmt::format("{} could not be written", shown_path(settings_file(folder.path()))));
  }
  if (!best_is_linked_) {
    clean(output);
  }
  if (!best_is_linked_) {
    throw std::runtime_error(fmt::format("{} could not be pointed to the best checkpoint",
                                         shown_path(folder.path() / "best")));
  }
  if (!metrics_are_whole) {
    throw std::runtime_error(fmt::format("the last lines of {} could not be written",
                                         shown_path(folder.metrics_file())));
  }
}

Tensor Trainer::loss(const Batch& batch) const {
  const AutocastGuard autocast(product_dtype(settings_));
  return model_->loss(batch.inputs, batch.targets);
}

std::optional<EvalMetrics> Trainer::evaluate(Generator& generator) {
  const NoGradGuard no_grad;
  const EvalMode eval_mode(*model_);
  EvalMetrics result{state_.next_iter, 0, 0};
  for (const data::Split split : {data::Split::kTrain, data::Split::kVal}) {
    double sum = 0;
    for (int64_t i = 0; i < settings_.eval_iters; ++i) {
      if (stopped()) {
        return std::nullopt;
      }
      sum += loss(batches_.at(split, batches_.draw(split, generator))).item();
    }
    (split == data::Split::kTrain ? result.train_loss : result.val_loss) =
        sum / static_cast<double>(settings_.eval_iters);
  }
  return result;
}

std::optional<HeadMetrics> Trainer::measure_head() const {
  const Batch batch = batches_.at(data::Split::kTrain, state_.batch);
  const AutocastGuard autocast(product_dtype(settings_));
  return head_metrics(*model_, batch.inputs, batch.targets);
}

EvalMetrics Trainer::evaluate_only() {
  Generator copy = default_generator();
  const std::optional<EvalMetrics> result = evaluate(copy);
  if (!result) {
    throw std::runtime_error("the evaluation was interrupted");
  }
  if (!std::isfinite(result->train_loss) || !std::isfinite(result->val_loss)) {
    throw std::runtime_error(fmt::format("the loss is not finite: train loss {}, val loss {}",
                                         unsigned_nan(result->train_loss),
                                         unsigned_nan(result->val_loss)));
  }
  return *result;
}

void Trainer::regular_evaluation(Output& output) {
  Generator generator = default_generator();
  std::optional<EvalMetrics> result = evaluate(generator);
  if (!result) {
    return;  // interrupted: as if it had not begun
  }
  result->head = measure_head();
  default_generator() = generator;
  state_.eval_done = true;
  state_.val_loss = result->val_loss;
  eval_is_finite_ = std::isfinite(result->train_loss) && std::isfinite(result->val_loss);
  attempt("metrics", [&] {
    output.metrics.write(*result);
    output.metrics.sync();
  });
  if (events_.on_eval) {
    events_.on_eval(*result);
  }
  save(output);
}

double Trainer::accumulate_gradients() {
  const auto micro_steps = static_cast<double>(settings_.gradient_accumulation_steps);
  double sum = 0;
  micro_steps_.clear();
  for (int64_t i = 0; i < settings_.gradient_accumulation_steps; ++i) {
    micro_steps_.push_back({state_.batch, default_generator().dropout_calls()});
    const Batch batch =
        in_scope("data", [&] { return batches_.at(data::Split::kTrain, state_.batch); });
    const Tensor micro_loss = in_scope("forward", [&] { return loss(batch) / micro_steps; });
    sum += micro_loss.item();
    state_.batch =
        in_scope("data", [&] { return batches_.draw(data::Split::kTrain, default_generator()); });
    in_scope("backward", [&] { micro_loss.backward(); });
  }
  return sum;
}

void Trainer::finish_profile(Output& output) {
  if (profile_ && profile_->measured() == 0) {
    warn(
        fmt::format("--profile measured nothing: the run ended within the {} steps that it leaves "
                    "out first",
                    StepProfile::kWarmUp));
  } else if (profile_) {
    const std::filesystem::path trace = output.folder.trace_file();
    const bool written = attempt("trace", [&] { output.folder.write_trace(profile_->trace()); });
    if (events_.on_profile) {
      events_.on_profile(profile_->text(), written ? trace : std::filesystem::path());
    }
  }
  profile_ = nullptr;
}

void Trainer::step(Output& output) {
  const profile::Recording recording(profile_ ? profile_->next_step() : nullptr);
  const profile::Scope whole("step");
  const auto start = Clock::now();
  const int64_t iter = state_.next_iter;
  const double learning_rate = schedule_.at(iter);
  const double mean_loss = accumulate_gradients();
  const double norm = in_scope("optimizer", [&] { return optim::grad_norm(model_->parameters()); });
  if (std::isfinite(mean_loss) && std::isfinite(norm)) {
    optimizer_->set_learning_rate(learning_rate);
    in_scope("optimizer", [&] { optimizer_->step(optim::clip_factor(norm, settings_.grad_clip)); });
  } else {
    handle_nonfinite(mean_loss, norm, output.folder);
  }
  model_->zero_grad();
  state_.next_iter = iter + 1;
  state_.eval_done = false;
  state_.val_loss.reset();
  eval_is_finite_ = true;

  if (iter % settings_.log_interval == 0) {
    const double seconds = seconds_since(start);
    const auto tokens =
        static_cast<double>(batches_.tokens() * settings_.gradient_accumulation_steps);
    const IterMetrics line{iter, mean_loss, learning_rate, norm, seconds * 1e3, tokens / seconds};
    attempt("metrics", [&] { output.metrics.write(line); });
    if (events_.on_iter) {
      events_.on_iter(line);
    }
  }
}

void Trainer::handle_nonfinite(double mean_loss, double norm, const RunFolder& folder) {
  const std::string message = fmt::format(
      "the loss or its gradient is not finite at iteration {}: loss {}, gradient norm {}{}",
      state_.next_iter, unsigned_nan(mean_loss), unsigned_nan(norm), first_nonfinite_op());
  if (state_.skipped >= settings_.skip_nonfinite) {
    throw std::runtime_error(message + what_is_kept(folder) + "; a lower --learning_rate may help");
  }
  ++state_.skipped;
  warn(message + "; the update is passed over");
}

std::string Trainer::what_is_kept(const RunFolder& folder) const {
  return saved_ && folder.has_checkpoint()
             ? fmt::format("; {} holds the model before iteration {}",
                           shown_path(folder.path() / "last"), saved_->first)
             : std::string();
}

// Runs the iteration's forward and backward passes again, with checks after each op.
std::string Trainer::first_nonfinite_op() {
  const uint64_t calls = default_generator().dropout_calls();
  std::string found;
  for (const MicroStep& micro : micro_steps_) {
    default_generator().set_dropout_calls(micro.dropout_calls);
    const DetectAnomaly anomaly;
    try {
      loss(batches_.at(data::Split::kTrain, micro.batch)).backward();
    } catch (const std::invalid_argument& e) {
      found = fmt::format(" ({})", without_source(e.what(), "detect_anomaly"));
      break;
    } catch (const std::exception& e) {
      found = fmt::format(" (the op is not known: {})", e.what());
      break;
    }
  }
  default_generator().set_dropout_calls(calls);
  return found;
}

bool Trainer::attempt(const std::string& subject, const std::function<void()>& f) {
  try {
    f();
    told_.erase(subject);
    return true;
  } catch (const std::exception& e) {
    const bool is_new = told_.count(subject) == 0 &&
                        std::none_of(told_.begin(), told_.end(),
                                     [&e](const auto& told) { return told.second == e.what(); });
    told_[subject] = e.what();
    if (is_new) {
      warn(e.what());
    }
    return false;
  }
}

void Trainer::warn(const std::string& message) const {
  if (events_.on_warning) {
    events_.on_warning(message);
  }
}

bool Trainer::has_finite_loss() const {
  const NoGradGuard no_grad;
  const EvalMode eval_mode(*model_);
  return std::isfinite(loss(batches_.at(data::Split::kTrain, state_.batch)).item());
}

std::string Trainer::why_not_to_save() const {
  try {
    if (!eval_is_finite_ || !has_finite_loss()) {
      return "its loss is not finite";
    }
  } catch (const std::exception& e) {
    return e.what();  // no memory for the loss
  }
  const std::string name = non_finite_weight(*model_);
  return name.empty() ? "" : name + " holds a NaN or an infinity";
}

void Trainer::save(Output& output) {
  // Until it is saved it is not the best: a later one that beats only the older one must be kept.
  TrainerState state = state_;
  if (state.val_loss && (!state.best_val_loss || *state.val_loss < *state.best_val_loss)) {
    state.best_val_loss = state.val_loss;
  }
  std::string settings_failure;
  const bool saved = attempt("checkpoint", [&] {
    if (const std::string reason = why_not_to_save(); !reason.empty()) {
      throw std::runtime_error(
          fmt::format("the model before iteration {} is not saved: {}", state.next_iter, reason));
    }
    const auto write = [this, &state](const std::filesystem::path& folder) {
      write_model(folder, config_, dataset_.vocab(), *model_);
      write_trainer(folder, state, *optimizer_, default_generator());
    };
    settings_failure = output.folder.save(state.next_iter, write);
  });
  if (saved) {
    state_ = state;
    saved_ = {state_.next_iter, state_.eval_done};
    attempt("settings", [&] {
      if (!settings_failure.empty()) {
        throw std::runtime_error(settings_failure);
      }
    });
    clean(output);
  }
}

void Trainer::clean(Output& output) {
  attempt("old checkpoints", [&] {
    const RunFolder::Cleaned cleaned = output.folder.clean(state_.best_val_loss);
    state_.best_val_loss = cleaned.best_val_loss;
    best_is_linked_ = cleaned.best_is_linked;
    if (!cleaned.failure.empty()) {
      throw std::runtime_error(cleaned.failure);
    }
  });
}

bool Trainer::is_saved(const RunFolder& folder) const {
  return saved_ == std::pair(state_.next_iter, state_.eval_done) && folder.has_checkpoint();
}

void Trainer::save_if_changed(Output& output) {
  if (!is_saved(output.folder)) {
    save(output);
  }
}

}  // namespace chargrad::train
