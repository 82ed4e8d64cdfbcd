// A run folder for tests, and checkpoints of a few bytes for it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/error_text.h"
#include "tests/temp_folder.h"
#include "train/run_folder.h"

namespace chargrad::train {

class RunFolderTest : public testing::Test {
 protected:
  std::filesystem::path run() const { return dir.path("run"); }

  using Loss = std::optional<double>;
  static constexpr Loss kNotEvaluated = std::nullopt;

  // The files of a checkpoint, of which model.safetensors has this text.
  static void write_checkpoint(const std::filesystem::path& path, int64_t next_iter, Loss val_loss,
                               const std::string& text) {
    for (const char* name : {"config.json", "vocab.json", "trainer.safetensors"}) {
      write_file(path / name, "");
    }
    write_file(path / "model.safetensors", text);
    write_file(path / "trainer.json",
               fmt::format(R"({{"next_iter": {}, "eval_done": {}, "val_loss": {}}})", next_iter,
                           val_loss.has_value(), val_loss ? std::to_string(*val_loss) : "null"));
  }

  // Saves one; of the best losses so far.
  static Loss save(RunFolder& folder, int64_t next_iter, Loss val_loss, const std::string& text) {
    folder.save(next_iter, [&](const std::filesystem::path& path) {
      write_checkpoint(path, next_iter, val_loss, text);
    });
    return clean(folder, {});
  }

  // The loss of the best; throws what could not be done.
  static Loss clean(const RunFolder& folder, Loss best_val_loss) {
    return done(folder.clean(best_val_loss));
  }
  static Loss settle(const RunFolder& folder, Loss best_val_loss) {
    return done(folder.settle(best_val_loss));
  }
  static Loss done(const RunFolder::Cleaned& cleaned) {
    if (!cleaned.failure.empty()) {
      throw std::runtime_error(cleaned.failure);
    }
    return cleaned.best_val_loss;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(run())) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string start_error(bool overwrite = false) const {
    return error_text<std::runtime_error>([&] { RunFolder::start(run(), overwrite); });
  }

  TempFolder dir;
};

}  // namespace chargrad::train
