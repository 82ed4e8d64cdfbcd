// sample: text from a model that train made.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "data/text_file.h"
#include "engine/autocast.h"
#include "engine/ops.h"
#include "engine/threads.h"
#include "models/generate.h"
#include "train/args.h"
#include "train/model_file.h"
#include "train/resolve.h"
#include "train/run_folder.h"

namespace chargrad::train {
namespace {

constexpr std::string_view kFilePrefix = "FILE:";

std::string prompt_text(const std::string& prompt) {
  return prompt.rfind(kFilePrefix, 0) == 0 ? data::read_text(prompt.substr(kFilePrefix.size()))
                                           : prompt;
}

// Writes at once, so that each character appears as it is drawn.
void show(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw std::runtime_error("cannot write to the standard output");
  }
}

void write_sample(const LoadedModel& loaded, const SampleSettings& settings,
                  const std::string& prompt) {
  std::vector<int64_t> ids = loaded.vocab.encode(prompt);
  if (ids.empty()) {
    ids.push_back(loaded.vocab.start_id());  // not part of the text
  }
  const auto length = static_cast<int64_t>(ids.size());
  SamplingOptions options;
  options.temperature = settings.temperature;
  options.top_k = settings.top_k;
  options.top_p = settings.top_p;
  show(prompt);
  const AutocastGuard autocast(settings.dtype == "bfloat16" ? kBFloat16 : kFloat32);
  generate(*loaded.model, from_vector(ids, {1, length}), settings.max_new_tokens, options,
           default_generator(), [&](const std::vector<int64_t>& next) {
             show(loaded.vocab.decode(next[0]));
             return true;
           });
  show("\n");
}

int sample(const SampleSettings& settings) {
  set_num_threads(static_cast<int>(settings.threads));
  const std::filesystem::path checkpoint = find_checkpoint(settings.out_dir, settings.checkpoint);
  const LoadedModel loaded = read_model(checkpoint);
  if (settings.verbose) {
    fmt::print(stderr, "sample: {} of {}, {} symbols\n", loaded.config.model, checkpoint.string(),
               loaded.vocab.size());
  }
  loaded.model->to(settings.dtype == "float64" ? kFloat64 : kFloat32);
  loaded.model->eval();
  const std::string prompt = prompt_text(settings.prompt);
  manual_seed(static_cast<uint64_t>(settings.seed));
  for (int64_t i = 0; i < settings.num_samples; ++i) {
    if (i > 0) {
      show("---------------\n");
    }
    write_sample(loaded, settings, prompt);
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
