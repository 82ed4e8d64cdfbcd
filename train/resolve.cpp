#include "train/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/kernels/cpu.h"
#include "train/json_file.h"
#include "train/presets.h"

namespace chargrad::train {

namespace {

// Names that the config file or the command line gave a value.
using Given = std::set<std::string>;

[[noreturn]] void fail(const std::string& message) {
  throw UsageError(fmt::format("{}: {}", train_program().name, message));
}

// Sets what the object names. `where` opens the messages: "my.json: n_layer=0 is not ...".
void apply_object(const SettingList& list, const Json& object, const std::string& where) {
  if (!object.is_object()) {
    fail(fmt::format("{}: the settings must be a JSON object, got {}", where, shown_json(object)));
  }
  for (const auto& [key, value] : object.items()) {
    const Setting* setting = list.find(key);
    if (setting == nullptr || key == "config") {
      const std::string near = list.nearest(key);
      fail(fmt::format(
          "{}: unknown key {}{}", where, shown(key),
          near.empty() || near == key ? std::string() : fmt::format("; did you mean {}?", near)));
    }
    const std::string broken = setting->assign_json(value);
    if (!broken.empty()) {
      fail(fmt::format("{}: {}={} {}", where, key, shown_json(value), broken));
    }
  }
}

// What a call says, before any of it is resolved.
struct Request {
  TrainSettings asked;  // Defaults, the config file and the flags: names the preset and the folder.
  Json config = Json::object();
  Given given;
};

Request read_request(const Arguments& arguments) {
  Request request;
  const SettingList list = setting_list(request.asked);
  apply_arguments(train_program(), list, arguments);
  for (const Assignment& flag : arguments.flags) {
    request.given.insert(flag.name);
  }
  if (!request.asked.config.empty()) {
    try {
      request.config = read_json_file(request.asked.config, Comments::kAllowed);
    } catch (const std::runtime_error& error) {
      fail(error.what());  // as for a flag: what is asked for cannot be
    }
    apply_object(list, request.config, shown(request.asked.config));
    apply_arguments(train_program(), list, arguments);
  }
  for (const auto& item : request.config.items()) {
    request.given.insert(item.key());
  }
  return request;
}

// One switch and one choice say the same; either may.
void settle_resume(TrainSettings& settings, const Given& given) {
  if (settings.resume && given.count("init_from") != 0 && settings.init_from != "resume") {
    fail("--resume contradicts --init_from=" + settings.init_from);
  }
  if (settings.init_from == "resume" && given.count("resume") != 0 && !settings.resume) {
    fail("--resume=false contradicts --init_from=resume");
  }
  settings.resume = settings.resume || settings.init_from == "resume";
  settings.init_from = settings.resume ? "resume" : "scratch";
  if (settings.resume && settings.overwrite) {
    fail("--resume goes on with the run that --overwrite would remove");
  }
}

// The config file's values and then the flags', onto what is there.
void apply_request(const SettingList& list, const Request& request, const Arguments& arguments) {
  apply_object(list, request.config, shown(request.asked.config));
  apply_arguments(train_program(), list, arguments);
}

// What --dtype=auto stands for.
std::string settled_dtype(const std::string& dtype) {
  if (dtype != "auto") {
    return dtype;
  }
  return kernels::has_fast_bfloat16() ? "bfloat16" : "float32";
}

TrainSettings resolve_new(const Request& request, const Arguments& arguments) {
  TrainSettings settings;
  const SettingList list = setting_list(settings);
  const auto preset = std::find_if(presets().begin(), presets().end(), [&request](const Preset& p) {
    return p.name == request.asked.preset;
  });
  const std::string where = "preset " + preset->name;
  const Json recipe = parse_json(preset->json, where, Comments::kAllowed);
  apply_object(list, recipe, where);
  apply_request(list, request, arguments);

  if (request.given.count("lr_decay_iters") == 0) {
    settings.lr_decay_iters = settings.max_iters;
  }
  if (request.given.count("min_lr") == 0) {
    settings.min_lr = settings.learning_rate / 10;
  }
  if (request.given.count("head_size") != 0 && settings.model != "head") {
    fail(fmt::format("--head_size={} is for --model=head, got --model={}", settings.head_size,
                     settings.model));
  }
  if (request.given.count("head_size") == 0 && !recipe.contains("head_size")) {
    settings.head_size = settings.n_embd;
  }
  settings.dtype = settled_dtype(settings.dtype);
  return settings;
}

TrainSettings resolve_resumed(const Request& request, const Arguments& arguments,
                              TrainSettings run) {
  TrainSettings settings = run;
  const SettingList list = setting_list(settings), run_list = setting_list(run);
  apply_request(list, request, arguments);
  if (request.given.count("min_lr") == 0 && run.min_lr == run.learning_rate / 10) {
    settings.min_lr = settings.learning_rate / 10;  // as the run's was
  }
  for (const Setting& setting : list) {
    const std::string kept = run_list.find(setting.name)->text();
    if (setting.on_resume == OnResume::kFixed && setting.text() != kept) {
      const bool is_flag =
          std::any_of(arguments.flags.begin(), arguments.flags.end(),
                      [&setting](const Assignment& flag) { return flag.name == setting.name; });
      fail(fmt::format("{0}{1}={2} differs from the run's {1}={3}, which --resume keeps",
                       is_flag ? "--" : shown(request.asked.config) + ": ", setting.name,
                       shown(setting.text()), shown(kept)));
    }
  }
  settings.dtype = settled_dtype(settings.dtype == "auto" ? run.dtype : settings.dtype);
  return settings;
}

void check_compile(const Program& program, bool compile) {
  if (compile) {
    throw UsageError(fmt::format("{}: --compile=true is not offered: there is nothing to compile",
                                 program.name));
  }
}

}  // namespace

const Program& train_program() {
  static const Program program{"train", "Trains a character model on a text.",
                               "--data=FILE [flags]"};
  return program;
}

const Program& sample_program() {
  static const Program program{"sample", "Writes text with a model that train made.",
                               "--out_dir=RUN [flags]"};
  return program;
}

TrainSettings resolve_train(const Arguments& arguments, const RunReader& read_run) {
  Request request = read_request(arguments);
  settle_resume(request.asked, request.given);
  TrainSettings settings =
      request.asked.resume ? resolve_resumed(request, arguments, read_run(request.asked.out_dir))
                           : resolve_new(request, arguments);
  settings.resume = request.asked.resume;
  settings.init_from = request.asked.init_from;
  check_settings(settings);
  return settings;
}

SampleSettings resolve_sample(const Arguments& arguments) {
  SampleSettings settings;
  apply_arguments(sample_program(), setting_list(settings), arguments);
  check_compile(sample_program(), settings.compile);
  settings.dtype = settled_dtype(settings.dtype);
  return settings;
}

void check_settings(const TrainSettings& s) {
  if (s.data.empty()) {
    fail("--data=FILE is missing: the text to train on");
  }
  if (s.model == "gpt" && s.n_embd % s.n_head != 0) {
    fail(fmt::format("--n_embd={} is not a multiple of --n_head={}", s.n_embd, s.n_head));
  }
  if (s.decay_lr && s.min_lr > s.learning_rate) {
    fail(fmt::format("--min_lr={} is above --learning_rate={}, where the decay starts", s.min_lr,
                     s.learning_rate));
  }
  if (s.model != "head" && s.attention_scale != "sqrt_dk") {
    fail(fmt::format("--attention_scale={} is for --model=head, got --model={}", s.attention_scale,
                     s.model));
  }
  if (s.eval_only && s.profile > 0) {
    fail("--eval_only makes no training step that --profile could measure");
  }
  if (s.eval_only && s.overwrite) {
    fail("--eval_only writes nothing, and --overwrite would remove a run");
  }
  check_compile(train_program(), s.compile);
}

}  // namespace chargrad::train
