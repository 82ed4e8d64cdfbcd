// train: a character model on a text file.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <filesystem>

#include "data/dataset.h"
#include "engine/kernels/cpu.h"
#include "engine/threads.h"
#include "train/args.h"
#include "train/checkpoints.h"
#include "train/console.h"
#include "train/resolve.h"
#include "train/run_folder.h"
#include "train/run_settings.h"
#include "train/sha256.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace chargrad::train {
namespace {

TrainSettings stored_settings(const std::string& out_dir) {
  find_checkpoint(out_dir, "last");  // says so where the folder holds no run
  const RunSettings run = read_run_settings(settings_file(out_dir));
  TrainSettings settings = run.settings;
  settings.data = run.data_path;
  return settings;
}

// The text, its place and its checksum.
struct Text {
  data::Dataset dataset;
  RunSettings described;
};

Text load_text(const TrainSettings& settings) {
  Sha256 sha256;
  data::Dataset dataset = data::Dataset::load(
      settings.data, [&sha256](std::string_view bytes) { sha256.update(bytes); });
  dataset.check_fits(settings.block_size);
  RunSettings described;
  described.settings = settings;
  described.data_path = std::filesystem::absolute(settings.data).string();
  described.data_bytes = dataset.file_bytes();
  described.data_sha256 = sha256.hex();
  described.kernels = kernels::tier_name(kernels::active_tier());
  return {std::move(dataset), std::move(described)};
}

void check_same_text(const RunSettings& stored, const RunSettings& now) {
  if (stored.data_sha256 != now.data_sha256) {
    throw std::runtime_error(fmt::format(
        "{} is not the text that this run is trained on: {} bytes with SHA-256 {}, the run's had "
        "{} bytes with {}",
        now.data_path, now.data_bytes, now.data_sha256, stored.data_bytes, stored.data_sha256));
  }
}

void tell_of_other_kernels(spdlog::logger& out, const RunSettings& stored, const RunSettings& now) {
  if (!stored.kernels.empty() && stored.kernels != now.kernels) {
    out.info("{} kernels from here on, {} before: the last bits of the numbers may differ",
             now.kernels, stored.kernels);
  }
}

void tell_of_lost_link(spdlog::logger& out, const std::string& out_dir) {
  const std::filesystem::path found = find_checkpoint(out_dir, "last");
  if (found.filename() != "last") {
    out.info("{}/last leads to no checkpoint: going on from {}", shown_path(out_dir),
             found.filename().string());
  }
}

// Gives the folder its links, and the trainer the best loss that a checkpoint of it has.
void settle(spdlog::logger& out, const RunFolder& folder, Trainer& trainer) {
  const std::optional<double> stored = trainer.best_val_loss();
  const RunFolder::Cleaned cleaned = folder.settle(stored);
  if (!cleaned.failure.empty()) {
    print_error("train: " + cleaned.failure);
  }
  const std::optional<double> held = cleaned.best_val_loss;
  trainer.set_best_val_loss(held);
  if (stored && (!held || *held > *stored)) {
    out.info(
        "no checkpoint is known to have the best validation loss so far, {:.4f}: {}", *stored,
        held ? fmt::format("{} leads to the best of the others", shown_path(folder.path() / "best"))
             : "the next evaluation is the best");
  }
}

// A run that goes on past its stored decay would do so at min_lr.
void tell_of_decay(spdlog::logger& out, const TrainSettings& stored, const TrainSettings& now) {
  if (now.decay_lr && now.max_iters > stored.max_iters && now.max_iters > now.lr_decay_iters) {
    out.info(
        "the learning rate stays at min_lr={} from iteration {} on; --lr_decay_iters={} would "
        "stretch its decay",
        now.min_lr, now.lr_decay_iters, now.max_iters);
  }
}

TrainEvents console_events(const std::shared_ptr<spdlog::logger>& out) {
  static constexpr const char* kNobodyReads =
      "train: cannot write to the standard output; the training goes on without it";
  TrainEvents events;
  events.on_iter = [out](const IterMetrics& m) {
    out->info(iter_line(m.iter, m.loss, m.ms, m.tokens_per_s));
    warn_of_lost_output(kNobodyReads);
  };
  events.on_eval = [out](const EvalMetrics& m) {
    out->info(eval_line(m.iter, m.train_loss, m.val_loss));
    out->flush();
    warn_of_lost_output(kNobodyReads);
  };
  events.on_profile = [out](const std::string& text, const std::filesystem::path& trace) {
    out->info("{}{}", text,
              trace.empty() ? "no trace was written"
                            : fmt::format("trace: {} (ui.perfetto.dev opens it)", trace.string()));
    out->flush();
  };
  events.on_warning = [](const std::string& message) { print_error("train: " + message); };
  events.stop_signal = stop_signal;
  return events;
}

// The room that a new checkpoint is to have: the model, two moments of each parameter, and some for
// their names, the vocabulary, the next batch and the losses so far.
int64_t checkpoint_bytes(const Trainer& trainer, const Text& text) {
  constexpr int64_t kRest = 64 << 10, kOfTensor = 512, kOfNumber = 16;
  const auto bytes = [](const Tensor& x) { return x.numel() * dtype_size(x.dtype()) + kOfTensor; };
  int64_t total =
      kRest + kOfNumber * (text.dataset.vocab().size() + text.described.settings.batch_size);
  for (const Tensor& parameter : trainer.model().parameters()) {
    total += 3 * bytes(parameter);
  }
  for (const auto& [name, buffer] : trainer.model().named_buffers()) {
    total += bytes(buffer);
  }
  return total;
}

void print_start(spdlog::logger& out, const TrainSettings& settings, const Text& text,
                 const Trainer& trainer) {
  TrainSettings shown = settings;
  out.info("{}", settings_text(setting_list(shown)));
  int64_t parameters = 0;
  for (const Tensor& parameter : trainer.model().parameters()) {
    parameters += parameter.numel();
  }
  out.info("{} characters, {} symbols, {} for training, {} for validation", text.dataset.size(),
           text.dataset.vocab().size(), text.dataset.size(data::Split::kTrain),
           text.dataset.size(data::Split::kVal));
  out.info("{} parameters, {} {}, {} kernels", parameters, num_threads(),
           num_threads() == 1 ? "thread" : "threads", kernels::tier_name(kernels::active_tier()));
  out.flush();
}

// Where everything is, and how to go on; the exit status.
int finish(spdlog::logger& out, const TrainSettings& settings, const Trainer& trainer,
           StopReason reason) {
  const std::string dir = shell_word(settings.out_dir);
  if (reason == StopReason::kSignal) {
    const std::string hint =
        fmt::format("stopped before iteration {}; go on with: train --out_dir={} --resume",
                    trainer.next_iter(), dir);
    out.info("{}", hint);
    out.flush();
    if (std::ferror(stdout) != 0) {  // The Ctrl-C of `train | tee` ends tee too.
      print_error("train: " + hint);
    }
    return exit_status_of(stop_signal());
  }
  const std::string end = reason != StopReason::kTimeIsUp
                              ? fmt::format("done at iteration {}", trainer.next_iter() - 1)
                          : trainer.next_iter() == 0
                              ? "time is up before the first iteration"
                              : fmt::format("time is up at iteration {}", trainer.next_iter() - 1);
  const std::filesystem::path run = settings.out_dir;
  std::error_code ignored;
  const bool has_best = std::filesystem::exists(run / "best" / "model.safetensors", ignored);
  // A run too short for a second evaluation.
  const bool best_is_untrained =
      trainer.next_iter() > 0 &&
      std::filesystem::equivalent(run / "best", run / "ckpt-000000", ignored);
  out.info("{}; {}/last {} the model; sample --out_dir={}{}", end, dir,
           has_best ? fmt::format("and {}/best hold", dir) : "holds", dir,
           best_is_untrained ? " --checkpoint=last" : "");
  return 0;
}

int run_in(RunFolder& folder, spdlog::logger& out, const Text& text, Trainer& trainer) {
  const TrainSettings& settings = text.described.settings;
  folder.set_settings(run_settings_text(text.described));
  if (!settings.resume) {
    folder.write_settings();  // of a run that goes on only when it has come further
  }
  print_start(out, settings, text, trainer);
  const StopReason reason = trainer.run(folder);
  return finish(out, settings, trainer, reason);
}

int train(const TrainSettings& settings) {
  set_num_threads(static_cast<int>(settings.threads));
  kernels::active_tier();  // refuses a wrong CHARGRAD_CPU before anything is done
  const auto out = spdlog::stdout_logger_st("train");
  out->set_pattern("%v");

  const Text text = load_text(settings);
  RunSettings stored;
  if (settings.resume) {
    stored = read_run_settings(settings_file(settings.out_dir));
    check_same_text(stored, text.described);
    tell_of_other_kernels(*out, stored, text.described);
  }
  const TrainEvents events = console_events(out);
  if (settings.resume) {
    tell_of_lost_link(*out, settings.out_dir);
  }
  if (settings.eval_only) {
    Trainer trainer = settings.resume
                          ? Trainer::resume(settings, text.dataset,
                                            find_checkpoint(settings.out_dir, "last"), events)
                          : Trainer(settings, text.dataset, events);
    print_start(*out, settings, text, trainer);
    if (!settings.resume) {
      out->info("a new model, which nothing has trained; --resume evaluates the run's");
    }
    const EvalMetrics m = trainer.evaluate_only();
    out->info(eval_line(m.iter, m.train_loss, m.val_loss));
    return 0;
  }

  watch_signals();
  if (settings.resume) {
    RunFolder folder = RunFolder::resume(settings.out_dir);
    Trainer trainer =
        Trainer::resume(settings, text.dataset, find_checkpoint(settings.out_dir, "last"), events);
    settle(*out, folder, trainer);
    tell_of_decay(*out, stored.settings, settings);
    if (trainer.next_iter() > settings.max_iters) {
      out->info(
          "nothing left to do: the iterations up to {} are done, and --max_iters={} asks for "
          "no more",
          trainer.next_iter() - 1, settings.max_iters);
      return 0;
    }
    folder.check_room(checkpoint_bytes(trainer, text));
    cut_metrics(folder.metrics_file(), trainer.next_iter(), trainer.eval_done());
    return run_in(folder, *out, text, trainer);
  }
  // Everything that may fail comes before --overwrite removes a run.
  Trainer trainer(settings, text.dataset, events);
  RunFolder folder =
      RunFolder::start(settings.out_dir, settings.overwrite, checkpoint_bytes(trainer, text));
  return run_in(folder, *out, text, trainer);
}

int run(int argc, const char* const* argv) {
  const Program& program = train_program();
  return run_program(program, [&] {
    TrainSettings defaults;
    const Arguments arguments = parse_arguments(program, setting_list(defaults), argc, argv);
    if (arguments.help || arguments.version) {
      fmt::print("{}", arguments.help ? help_text(program, setting_list(defaults))
                                      : version_text(program) + "\n");
      return 0;
    }
    return train(resolve_train(arguments, stored_settings));
  });
}

}  // namespace
}  // namespace chargrad::train

int main(int argc, char** argv) {
  return chargrad::train::run(argc, argv);
}
