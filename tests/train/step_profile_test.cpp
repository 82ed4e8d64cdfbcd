#include "train/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/ops.h"
#include "models/gpt.h"

namespace chargrad::train {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

GPTConfig tiny() {
  return {/*block_size=*/4, /*vocab_size=*/5, /*n_layer=*/2, /*n_head=*/2, /*n_embd=*/8};
}

// Training steps as the trainer's, each offered to the profile.
void run_steps(StepProfile& profile, const GPT& gpt, int steps) {
  for (int i = 0; i < steps; ++i) {
    const profile::Recording recording(profile.next_step());
    const profile::Scope whole("step");
    Tensor loss;
    {
      const profile::Scope scope("forward");
      loss = gpt.loss(zeros({2, 4}, kInt64), zeros({2, 4}, kInt64));
    }
    {
      const profile::Scope scope("backward");
      loss.backward();
    }
    const profile::Scope scope("optimizer");
  }
}

TEST(StepProfile, LeavesTheWarmUpOutAndStops) {
  const GPT gpt(tiny());
  StepProfile profile(2, gpt);
  run_steps(profile, gpt, StepProfile::kWarmUp);
  EXPECT_EQ(profile.measured(), 0);
  EXPECT_FALSE(profile.done());
  run_steps(profile, gpt, 1);
  EXPECT_EQ(profile.measured(), 1);
  run_steps(profile, gpt, 5);
  EXPECT_EQ(profile.measured(), 2);
  EXPECT_TRUE(profile.done());
  EXPECT_THAT(profile.text(), HasSubstr("profile of 2 steps, "));
}

TEST(StepProfile, PhasesOfAGptHoldAllRows) {
  const GPT gpt(tiny());
  profile::Profiler::Names names;
  for (const auto& [name, module] : gpt.named_modules()) {
    names.emplace(module, name);
  }
  profile::Profiler profiler(names);
  {
    const profile::Recording recording(&profiler);
    const profile::Scope scope("forward");
    gpt.loss(zeros({2, 4}, kInt64), zeros({2, 4}, kInt64)).backward();
  }
  std::vector<std::string> phases;
  int64_t nanoseconds = 0;
  for (const Phase& phase : phases_of(profiler.rows())) {
    phases.push_back(phase.name);
    nanoseconds += phase.forward.nanoseconds + phase.backward.nanoseconds;
    if (phase.name == "qkv" || phase.name == "MLP" || phase.name == "attention") {
      EXPECT_GT(phase.forward.flops, 0) << phase.name;
      EXPECT_EQ(phase.backward.flops, 2 * phase.forward.flops) << phase.name;
    }
  }
  EXPECT_THAT(phases, ElementsAre("embedding", "norm", "qkv", "attention", "projection", "residual",
                                  "MLP", "head and loss", "other"));
  EXPECT_EQ(nanoseconds, profiler.nanoseconds());
}

TEST(StepProfile, AnotherModelsScopesAreTheirOwnPhases) {
  const std::vector<profile::Row> rows = {{"sa_head.key", "linear", false, {1, 5, 0, 0}},
                                          {"optimizer", "", false, {1, 7, 0, 0}}};
  std::vector<std::string> names;
  for (const Phase& phase : phases_of(rows)) {
    names.push_back(phase.name);
  }
  EXPECT_THAT(names, ElementsAre("sa_head.key", "optimizer"));
}

TEST(StepProfile, TheTraceNestsAndNamesOpsAndModules) {
  const GPT gpt(tiny());
  StepProfile profile(1, gpt);
  run_steps(profile, gpt, StepProfile::kWarmUp + 1);
  const Json trace = Json::parse(profile.trace());
  std::set<std::string> names;
  std::vector<double> ends;  // of the events around the present one
  std::vector<Json> events;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      events.push_back(event);
      names.insert(event.at("name"));
    }
  }
  // Outer events first: by begin, the longer one before.
  std::stable_sort(events.begin(), events.end(), [](const Json& a, const Json& b) {
    const double x = a.at("ts"), y = b.at("ts");
    return x < y || (x == y && a.at("dur") > b.at("dur"));
  });
  constexpr double kRounding = 1e-4;  // microseconds with three decimals as doubles
  for (const Json& event : events) {
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    while (!ends.empty() && ends.back() <= begin + kRounding) {
      ends.pop_back();
    }
    EXPECT_TRUE(ends.empty() || end <= ends.back() + kRounding) << event;
    ends.push_back(end);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"step", "forward", "backward", "transformer",
                                            "transformer.h.1.mlp.c_fc", "linear", "gelu",
                                            "linear backward", "cross_entropy backward"}));
}

}  // namespace
}  // namespace chargrad::train
