// RUN/metrics.jsonl: one JSON object a line, appended as training goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "train/files.h"
#include "train/head_metrics.h"

namespace chargrad::train {

struct IterMetrics {
  int64_t iter;
  double loss;  // Mean over the micro-steps, before the update.
  double lr;
  double grad_norm;  // Before clipping.
  double ms;
  double tokens_per_s;
};

struct EvalMetrics {
  int64_t iter;
  double train_loss;
  double val_loss;
  std::optional<HeadMetrics> head = {};  // Of a head model.
};

// Owns the open file. Not for use by several threads. Every call writes one whole line at once. If
// that fails it throws std::runtime_error, what was written of the line is taken back, so that the
// file stays whole, and the line is written with the next one.
class MetricsFile {
 public:
  // Opens `path` to append, and makes it if it is not there. `hold` is called before that is done
  // again, where the file is no longer there, and may throw.
  explicit MetricsFile(const std::string& path, std::function<void()> hold = {});

  void write(const IterMetrics& metrics);
  void write(const EvalMetrics& metrics);
  // Any other object, without a line break in it.
  void write_line(const std::string& object);

  // Writes what is still to be written, and waits until it is on the disk.
  void sync();

 private:
  void open();
  void write_waiting();

  std::string path_;
  std::function<void()> hold_;
  std::unique_ptr<Descriptor> file_;
  std::string waiting_;             // lines that are not in the file yet
  std::optional<int64_t> torn_at_;  // where a torn line begins that could not be taken back
};

// Shortens the file to what was written before the checkpoint of a run that goes on with iteration
// `next_iter`: the first line of a later iteration and all after it go, and so do lines at the end
// that are torn or no JSON. The evaluation at `next_iter` stays only if `eval_done`. What stays
// keeps its bytes. A file that is not there is left so.
void cut_metrics(const std::filesystem::path& path, int64_t next_iter, bool eval_done);

}  // namespace chargrad::train
