#include "train/trainer_state.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>

#include "engine/ops.h"
#include "train/files.h"
#include "train/json_file.h"
#include "train/safetensors.h"

namespace chargrad::train {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMostIters = int64_t{1} << 62;  // so that the next one is a number too
constexpr double kLargest = std::numeric_limits<double>::max();

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

// The bytes that a text of hexadecimal digits stands for.
std::vector<uint8_t> read_bytes(const Members& members, const char* name) {
  const std::string text = members.text(name);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) {
      break;
    }
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  if (bytes.size() * 2 != text.size()) {
    members.fail("{} must be a text of hexadecimal digits, got {}", name, shown(text));
  }
  return bytes;
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<double> read_loss(const Members& members, const char* name) {
  return members.at(name).is_null() ? std::optional<double>()
                                    : members.real(name, -kLargest, kLargest);
}

std::vector<int64_t> read_batch(const Members& members, int64_t windows) {
  std::vector<int64_t> batch = members.wholes("batch", 0, INT64_MAX);
  if (batch.empty()) {
    members.fail("batch must not be empty");
  }
  for (const int64_t offset : batch) {
    if (offset >= windows) {
      members.fail("batch holds the offset {}, the text has {} windows", offset, windows);
    }
  }
  return batch;
}

// Pairs of a moment and what the file holds for it.
std::vector<std::pair<Tensor, Tensor>> read_moments(const std::filesystem::path& path,
                                                    const optim::AdamW& optimizer) {
  int64_t expected = 0;
  for (const auto& [name, moment] : optimizer.state()) {
    expected += moment.numel();
  }
  const Safetensors file = read_safetensors(path, [&path, expected](int64_t held) {
    if (held != expected) {
      throw std::runtime_error(fmt::format("{}: holds {} numbers, the moments of this model are {}",
                                           shown_path(path), held, expected));
    }
  });
  std::map<std::string, Tensor> held(file.tensors.begin(), file.tensors.end());
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const auto& [name, moment] : optimizer.state()) {
    const auto found = held.find(name);
    if (found == held.end() || found->second.shape() != moment.shape() ||
        !is_floating(found->second.dtype())) {
      throw std::runtime_error(
          fmt::format("{}: {} of shape {} is missing", shown_path(path), name, moment.shape()));
    }
    // An infinity may come of a large gradient, and pass.
    if (found->second.numel() > 0 && std::isnan(amax(abs(found->second)).item())) {
      throw std::runtime_error(fmt::format("{}: {} holds a NaN", shown_path(path), name));
    }
    pairs.emplace_back(moment, found->second);
    held.erase(found);
  }
  if (!held.empty()) {
    throw std::runtime_error(fmt::format("{}: {} is no moment of this model", shown_path(path),
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
  object["val_loss"] = number_or_null(state.val_loss);
  object["best_val_loss"] = number_or_null(state.best_val_loss);
  object["skipped"] = state.skipped;
  object["optimizer_steps"] = optimizer.steps();
  object["batch"] = state.batch;
  object["dropout_calls"] = generator.dropout_calls();
  object["generator"] = to_hex(generator.get_state());
  write_file(folder / "trainer.json", object.dump(2) + "\n");
  write_safetensors(folder / "trainer.safetensors", optimizer.state());
}

TrainerState read_trainer(const std::filesystem::path& folder, int64_t windows,
                          optim::AdamW& optimizer, Generator& generator) {
  const Members members = Members::read(folder / "trainer.json");
  members.check_version(kVersion);
  TrainerState state;
  state.next_iter = members.whole("next_iter", 0, kMostIters);
  state.eval_done = members.boolean("eval_done");
  if (members.has("val_loss")) {  // which an older version did not write
    state.val_loss = read_loss(members, "val_loss");
  }
  if (members.has("skipped")) {  // nor that
    state.skipped = members.whole("skipped", 0, kMostIters);
  }
  state.best_val_loss = read_loss(members, "best_val_loss");
  state.batch = read_batch(members, windows);
  const int64_t steps = members.whole("optimizer_steps", 0, kMostIters);
  const int64_t dropout_calls = members.whole("dropout_calls", 0, INT64_MAX);
  Generator restored;
  try {
    restored.set_state(read_bytes(members, "generator"));
  } catch (const std::invalid_argument& e) {
    members.fail("generator: {}", without_source(e.what(), "generator"));
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
