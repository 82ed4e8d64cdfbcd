// sample: text from a model that train made.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "data/text_file.h"
#include "engine/autocast.h"
#include "engine/ops.h"
#include "engine/threads.h"
#include "models/generate.h"
#include "train/args.h"
#include "train/checkpoints.h"
#include "train/files.h"
#include "train/model_file.h"
#include "train/resolve.h"

namespace chargrad::train {
namespace {

constexpr std::string_view kFilePrefix = "FILE:";
constexpr std::string_view kSeparator = "---------------\n";

// What a prompt's text is, and what to call it in a message.
struct Prompt {
  std::string text;
  std::string source = "--prompt";
};

Prompt read_prompt(const std::string& value) {
  if (value.rfind(kFilePrefix, 0) != 0) {
    return {value};
  }
  const std::string path = value.substr(kFilePrefix.size());
  if (path.empty()) {
    throw UsageError("sample: --prompt=FILE: names no file: --prompt=FILE:PATH");
  }
  return {data::read_text(path), shown_path(path)};
}

// Writes at once, so that each character appears as it is drawn.
void show(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail_errno("write to", "the standard output");
  }
}

// Samples drawn in one pass. More would not be faster, and each takes memory for its context.
constexpr int64_t kMostTogether = 16;
// Characters of samples drawn in one pass. All but the first are shown only when all are there.
constexpr int64_t kMostCharacters = int64_t{1} << 20;
// Random numbers that samples drawn in one pass may take: they are skipped before the first
// character, 0.2 seconds for so many.
constexpr int64_t kMostDraws = int64_t{1} << 26;

int64_t samples_together(const SampleSettings& settings, int64_t vocab_size) {
  const int64_t length = std::max<int64_t>(settings.max_new_tokens, 1);
  const int64_t most = std::min(kMostCharacters, kMostDraws / vocab_size) / length;
  return std::clamp<int64_t>(most, 1, kMostTogether);
}

SamplingOptions sampling_options(const SampleSettings& settings) {
  SamplingOptions options;
  options.temperature = settings.temperature;
  options.top_k = settings.top_k;
  options.top_p = settings.top_p;
  return options;
}

// Draws `count` samples together. The first is shown as it is drawn, the others after it.
void write_samples(const LoadedModel& loaded, const SampleSettings& settings, const Prompt& prompt,
                   int64_t count) {
  std::vector<int64_t> ids = loaded.vocab.encode(prompt.text, prompt.source);
  if (ids.empty()) {
    ids.push_back(loaded.vocab.start_id());  // not part of the text
  }
  const Tensor start = from_vector(ids, {1, static_cast<int64_t>(ids.size())});  // (1, T)
  const SamplingOptions options = sampling_options(settings);
  std::vector<Generator> streams = consecutive_streams(
      default_generator(), count, settings.max_new_tokens, loaded.vocab.size(), options);
  std::vector<std::string> texts(static_cast<size_t>(count));
  show(prompt.text);
  generate(*loaded.model, expand(start, {count, -1}), settings.max_new_tokens, options, streams,
           [&](const std::vector<int64_t>& next) {
             show(loaded.vocab.decode(next[0]));
             for (size_t i = 1; i < next.size(); ++i) {
               texts[i] += loaded.vocab.decode(next[i]);
             }
             return true;
           });
  show("\n");
  default_generator() = streams.back();
  for (size_t i = 1; i < texts.size(); ++i) {
    show(std::string(kSeparator) + prompt.text + texts[i] + "\n");
  }
}

int sample(const SampleSettings& settings) {
  std::signal(SIGPIPE, SIG_DFL);  // a closed pipe is the end, be it that the caller ignores it
  set_num_threads(static_cast<int>(settings.threads));
  const std::filesystem::path checkpoint = find_checkpoint(settings.out_dir, settings.checkpoint);
  const LoadedModel loaded = read_model(checkpoint);
  if (settings.verbose) {
    print_error(fmt::format("sample: {} of {}, {} symbols", loaded.config.model,
                            checkpoint.string(), loaded.vocab.size()));
  }
  loaded.model->to(settings.dtype == "float64" ? kFloat64 : kFloat32);
  loaded.model->eval();
  const Prompt prompt = read_prompt(settings.prompt);
  manual_seed(static_cast<uint64_t>(settings.seed));
  const AutocastGuard autocast(settings.dtype == "bfloat16" ? kBFloat16 : kFloat32);
  const int64_t together = samples_together(settings, loaded.vocab.size());
  try {
    for (int64_t i = 0; i < settings.num_samples; i += together) {
      if (i > 0) {
        show(kSeparator);
      }
      write_samples(loaded, settings, prompt, std::min(together, settings.num_samples - i));
    }
  } catch (const NonFiniteLogits& error) {
    throw std::runtime_error(fmt::format("{}: {}", shown_path(checkpoint), error.what()));
  }
  return 0;
}

int run(int argc, const char* const* argv) {
  const Program& program = sample_program();
  return run_program(program, [&] {
    SampleSettings defaults;
    const Arguments arguments = parse_arguments(program, setting_list(defaults), argc, argv);
    if (arguments.help || arguments.version) {
      show(arguments.help ? help_text(program, setting_list(defaults))
                          : version_text(program) + "\n");
      return 0;
    }
    return sample(resolve_sample(arguments));
  });
}

}  // namespace
}  // namespace chargrad::train

int main(int argc, char** argv) {
  return chargrad::train::run(argc, argv);
}
