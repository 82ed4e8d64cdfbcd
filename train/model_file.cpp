#include "train/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "data/code_points.h"
#include "models/bigram.h"
#include "models/gpt.h"
#include "models/head_lm.h"
#include "train/files.h"
#include "train/json_file.h"
#include "train/safetensors.h"

namespace chargrad::train {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxSize = int64_t{1} << 24;  // of any one size in a config
constexpr const char* kTiedName = "lm_head.weight";
constexpr const char* kKeptName = "transformer.wte.weight";

template <class... Args>
[[noreturn]] void fail(const std::filesystem::path& path, fmt::format_string<Args...> format,
                       Args&&... args) {
  throw std::runtime_error(
      fmt::format("{}: {}", shown_path(path), fmt::format(format, std::forward<Args>(args)...)));
}

// Calls f(name, member) for the whole numbers that a model of this kind has.
template <class Config, class F>
void each_size(Config& c, const F& f) {
  f("vocab_size", c.vocab_size);
  f("block_size", c.block_size);
  if (c.model != "bigram") {
    f("n_embd", c.n_embd);
  }
  if (c.model == "gpt") {
    f("n_layer", c.n_layer);
    f("n_head", c.n_head);
  }
  if (c.model == "head") {
    f("head_size", c.head_size);
  }
}

Json to_json(const ModelConfig& c) {
  Json object = Json::object();
  object["version"] = kVersion;
  object["model"] = c.model;
  each_size(c, [&object](const char* name, int64_t size) { object[name] = size; });
  if (c.model == "head") {
    object["attention_scale"] = c.attention_scale;
  }
  if (c.model == "gpt") {
    object["dropout"] = c.dropout;
    object["bias"] = c.bias;
  }
  return object;
}

ModelConfig read_config(const std::filesystem::path& path) {
  const Members members = Members::read(path);
  members.check_version(kVersion);
  ModelConfig c;
  c.model = members.choice("model", {"gpt", "head", "bigram"});
  each_size(
      c, [&members](const char* name, int64_t& size) { size = members.whole(name, 1, kMaxSize); });
  if (c.model == "head") {
    c.attention_scale = members.choice("attention_scale", {"sqrt_dk", "none"});
  }
  if (c.model == "gpt") {
    c.bias = members.boolean("bias");
    c.dropout = members.real("dropout", 0, 1);
    if (c.n_embd % c.n_head != 0) {
      members.fail("n_head must divide n_embd, got {} and {}", c.n_head, c.n_embd);
    }
  }
  return c;
}

// Numbers in the model's tensors, from its sizes; a double, because they are not to be trusted.
double element_count(const ModelConfig& c) {
  const auto V = static_cast<double>(c.vocab_size), T = static_cast<double>(c.block_size);
  const auto C = static_cast<double>(c.n_embd), D = static_cast<double>(c.head_size);
  if (c.model == "bigram") {
    return V * V;
  }
  if (c.model == "head") {
    return V * C + T * C + 3 * C * D + T * T + D * V + V;
  }
  const double bias = c.bias ? 1 : 0;
  const double block = 12 * C * C + 2 * C + bias * (2 * C + 3 * C + C + 4 * C + C);
  return V * C + T * C + static_cast<double>(c.n_layer) * block + C + bias * C;
}

Json vocab_json(const data::Vocab& vocab) {
  Json symbols = Json::array();
  for (int64_t id = 0; id < vocab.size(); ++id) {
    symbols.push_back(vocab.decode(id));
  }
  Json object = Json::object();
  object["version"] = kVersion;
  object["symbols"] = symbols;
  return object;
}

// The one character that the value is a text of, or nothing.
std::optional<int64_t> read_symbol(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  std::array<char32_t, data::kMaxUtf8Bytes> characters{};
  if (text.size() > characters.size()) {
    return std::nullopt;
  }
  const data::Decoded decoded = data::decode_utf8(text, characters.data());
  if (decoded.bytes != text.size() || decoded.characters != 1) {
    return std::nullopt;
  }
  return characters[0];
}

data::Vocab read_vocab(const std::filesystem::path& path) {
  const Members members = Members::read(path);
  members.check_version(kVersion);
  std::vector<int64_t> code_points;
  for (const Json& value : members.array("symbols")) {
    const std::optional<int64_t> symbol = read_symbol(value);
    if (!symbol) {
      members.fail("a symbol must be a text of one character, got {}", shown_json(value));
    }
    code_points.push_back(*symbol);
  }
  try {
    return data::Vocab::from_code_points(code_points);
  } catch (const std::invalid_argument& e) {
    members.fail("{}", e.what());
  }
}

nn::NamedTensors file_tensors(const LanguageModel& model) {
  nn::NamedTensors tensors = model.named_parameters();
  const nn::NamedTensors buffers = model.named_buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

}  // namespace

ModelConfig model_config(const TrainSettings& s, int64_t vocab_size) {
  ModelConfig c;
  c.model = s.model;
  c.vocab_size = vocab_size;
  c.block_size = s.block_size;
  if (s.model != "bigram") {
    c.n_embd = s.n_embd;
  }
  if (s.model == "head") {
    c.head_size = s.head_size;
    c.attention_scale = s.attention_scale;
  }
  if (s.model == "gpt") {
    c.n_layer = s.n_layer;
    c.n_head = s.n_head;
    c.dropout = s.dropout;
    c.bias = s.bias;
  }
  return c;
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& c, Generator& generator) {
  if (c.model == "bigram") {
    return std::make_unique<BigramLM>(c.vocab_size, c.block_size, generator);
  }
  if (c.model == "head") {
    const AttentionScale scale =
        c.attention_scale == "none" ? AttentionScale::kNone : AttentionScale::kSqrtDk;
    return std::make_unique<HeadLM>(c.vocab_size, c.n_embd, c.head_size, c.block_size, generator,
                                    scale);
  }
  GPTConfig gpt;
  gpt.block_size = c.block_size;
  gpt.vocab_size = c.vocab_size;
  gpt.n_layer = c.n_layer;
  gpt.n_head = c.n_head;
  gpt.n_embd = c.n_embd;
  gpt.dropout = c.dropout;
  gpt.bias = c.bias;
  return std::make_unique<GPT>(gpt, generator);
}

void write_model(const std::filesystem::path& folder, const ModelConfig& config,
                 const data::Vocab& vocab, const LanguageModel& model) {
  Metadata metadata{{"format", "pt"}};
  if (config.model == "gpt") {
    metadata[kTiedName] = kKeptName;
  }
  write_safetensors(folder / "model.safetensors", file_tensors(model), metadata);
  write_file(folder / "config.json", to_json(config).dump(2) + "\n");
  write_file(folder / "vocab.json", vocab_json(vocab).dump(2) + "\n");
}

LoadedModel read_model(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "config.json";
  const std::filesystem::path model_path = folder / "model.safetensors";
  const ModelConfig config = read_config(config_path);
  data::Vocab vocab = read_vocab(folder / "vocab.json");
  if (vocab.size() != config.vocab_size) {
    fail(folder / "vocab.json", "{} symbols do not fit the vocab_size {} of config.json",
         vocab.size(), config.vocab_size);
  }
  const Safetensors file = read_safetensors(model_path, [&](int64_t held) {
    // Before anything of the size that the config or the header claims is made.
    if (static_cast<double>(held) != element_count(config)) {
      fail(model_path, "holds {} numbers, the model of config.json has {}", held,
           element_count(config));
    }
  });
  Generator unused;
  std::unique_ptr<LanguageModel> model = make_model(config, unused);
  const bool is_double =
      std::any_of(file.tensors.begin(), file.tensors.end(),
                  [](const auto& named) { return named.second.dtype() == kFloat64; });
  model->to(is_double ? kFloat64 : kFloat32);
  try {
    model->load_state_dict(file.tensors);
  } catch (const std::invalid_argument& e) {
    constexpr size_t kLongest = 500;
    fail(model_path, "{}",
         shown(without_source(e.what(), "load_state_dict"),
               kLongest));  // names from the file are in it
  }
  return {config, std::move(vocab), std::move(model)};
}

}  // namespace chargrad::train
