#include "train/trainer_state.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/ops.h"
#include "train/files.h"
#include "train/json_file.h"
#include "train/safetensors.h"

namespace chargrad::train {
namespace {

constexpr int64_t kVersion = 1;

std::string to_hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The members of one JSON object, checked.
class Members {
 public:
  explicit Members(const std::filesystem::path& path)
      : path_(path), object_(read_json_file(path)) {}

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw std::runtime_error(
        fmt::format("{}: {}", path_.string(), fmt::format(format, std::forward<Args>(args)...)));
  }

  const Json& at(const char* name) const {
    if (!object_.is_object() || !object_.contains(name)) {
      fail("{} is missing", name);
    }
    return object_.at(name);
  }

  int64_t whole(const char* name) const { return whole(name, at(name)); }
  int64_t whole(const char* name, const Json& value) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      fail("{} must be a whole number in [0, 2^63), got {}", name, shown_json(value));
    }
    return value.get<int64_t>();
  }

  bool boolean(const char* name) const {
    if (!at(name).is_boolean()) {
      fail("{} must be true or false, got {}", name, shown_json(at(name)));
    }
    return at(name).get<bool>();
  }

  std::optional<double> real_or_null(const char* name) const {
    const Json& value = at(name);
    if (value.is_null()) {
      return std::nullopt;
    }
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      fail("{} must be a number or null, got {}", name, shown_json(value));
    }
    return value.get<double>();
  }

  std::vector<uint8_t> bytes(const char* name) const {
    const Json& value = at(name);
    const std::string text = value.is_string() ? value.get<std::string>() : std::string("?");
    std::vector<uint8_t> result;
    for (size_t i = 0; i + 1 < text.size() && text.size() % 2 == 0; i += 2) {
      const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
      if (high < 0 || low < 0) {
        break;
      }
      result.push_back(static_cast<uint8_t>(high * 16 + low));
    }
    if (result.size() * 2 != text.size()) {
      fail("{} must be a text of hexadecimal digits, got {}", name, shown_json(value));
    }
    return result;
  }

 private:
  std::filesystem::path path_;
  Json object_;
};

std::vector<int64_t> read_batch(const Members& members, int64_t windows) {
  const Json& offsets = members.at("batch");
  if (!offsets.is_array() || offsets.empty()) {
    members.fail("batch must be an array of offsets, got {}", shown_json(offsets));
  }
  std::vector<int64_t> batch;
  for (const Json& offset : offsets) {
    batch.push_back(members.whole("batch", offset));
    if (batch.back() >= windows) {
      members.fail("batch holds the offset {}, the text has {} windows", batch.back(), windows);
    }
  }
  return batch;
}

// Pairs of a moment and what the file holds for it.
std::vector<std::pair<Tensor, Tensor>> read_moments(const std::filesystem::path& path,
                                                    const optim::AdamW& optimizer) {
  const Safetensors file = read_safetensors(path);
  std::map<std::string, Tensor> held(file.tensors.begin(), file.tensors.end());
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const auto& [name, moment] : optimizer.state()) {
    const auto found = held.find(name);
    if (found == held.end() || found->second.shape() != moment.shape() ||
        !is_floating(found->second.dtype())) {
      throw std::runtime_error(
          fmt::format("{}: {} of shape {} is missing", path.string(), name, moment.shape()));
    }
    pairs.emplace_back(moment, found->second);
    held.erase(found);
  }
  if (!held.empty()) {
    throw std::runtime_error(fmt::format("{}: {} is no moment of this model", path.string(),
                                         shown(held.begin()->first)));
  }
  return pairs;
}

}  // namespace

void write_trainer(const std::filesystem::path& folder, const TrainerState& state,
                   const optim::AdamW& optimizer, const Generator& generator) {
  Json object = Json::object();
  object["version"] = kVersion;
  object["next_iter"] = state.next_iter;
  object["eval_done"] = state.eval_done;
  object["best_val_loss"] = state.best_val_loss ? Json(*state.best_val_loss) : Json(nullptr);
  object["optimizer_steps"] = optimizer.steps();
  object["batch"] = state.batch;
  object["dropout_calls"] = generator.dropout_calls();
  object["generator"] = to_hex(generator.get_state());
  write_file(folder / "trainer.json", object.dump(2) + "\n");
  write_safetensors(folder / "trainer.safetensors", optimizer.state());
}

TrainerState read_trainer(const std::filesystem::path& folder, int64_t windows,
                          optim::AdamW& optimizer, Generator& generator) {
  const Members members(folder / "trainer.json");
  if (members.whole("version") != kVersion) {
    members.fail("version {} is not supported; this program reads version {}",
                 members.whole("version"), kVersion);
  }
  TrainerState state;
  state.next_iter = members.whole("next_iter");
  state.eval_done = members.boolean("eval_done");
  state.best_val_loss = members.real_or_null("best_val_loss");
  state.batch = read_batch(members, windows);
  const int64_t steps = members.whole("optimizer_steps");
  const int64_t dropout_calls = members.whole("dropout_calls");
  Generator restored;
  try {
    restored.set_state(members.bytes("generator"));
  } catch (const std::invalid_argument& e) {
    members.fail("generator: {}", e.what());
  }
  restored.set_dropout_calls(static_cast<uint64_t>(dropout_calls));

  const auto moments = read_moments(folder / "trainer.safetensors", optimizer);
  const NoGradGuard no_grad;
  for (const auto& [moment, held] : moments) {
    copy_(moment, held);
  }
  optimizer.set_steps(steps);
  generator = restored;
  return state;
}

}  // namespace chargrad::train
