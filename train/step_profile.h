// train --profile=N: where the time of N training steps goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/profile.h"
#include "nn/module.h"

namespace chargrad::train {

// What the rows of a profile add up to in one part of the model or the step.
struct Phase {
  std::string name;
  profile::Totals forward;  // also of what has no backward, such as the optimizer
  profile::Totals backward;
};

// The phases of a profile whose scopes are modules of a model and "data", "forward", "backward" and
// "optimizer", in the order of a step. All rows are in one of them.
std::vector<Phase> phases_of(const std::vector<profile::Row>& rows);

// Leaves out some steps, in which memory is taken and caches fill, and measures the next ones.
class StepProfile {
 public:
  static constexpr int64_t kWarmUp = 3;
  // The trace ends after so many stretches of time; the table does not.
  static constexpr size_t kMostSpans = 100'000;

  // Requires: the model outlives this.
  StepProfile(int64_t steps, const nn::Module& model);

  // For each step: who records it, or null.
  profile::Profiler* next_step();
  int64_t measured() const { return measured_; }
  bool done() const { return measured_ == steps_; }

  // Two tables, by phase and by op: calls, milliseconds, share, GF/s and MiB allocated, all of one
  // step on average. Requires: measured() > 0.
  std::string text() const;
  // The steps as JSON of Chrome's trace events, which ui.perfetto.dev opens.
  std::string trace() const;

 private:
  int64_t steps_;
  int64_t seen_ = 0;
  int64_t measured_ = 0;
  profile::Profiler profiler_;
};

}  // namespace chargrad::train
