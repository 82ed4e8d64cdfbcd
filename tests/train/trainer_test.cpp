// The loop: order of events, checkpoints, exact continuation.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/error_text.h"
#include "tests/sanitized.h"
#include "tests/train/trainer_fixture.h"

namespace chargrad::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TrainerTest, IterationsAreInclusiveAndEvaluationsLieOnTheGrid) {
  Log log;
  EXPECT_EQ(train("a", tiny(), log), StopReason::kFinished);
  EXPECT_EQ(log.iters.size(), 13u);
  EXPECT_EQ(log.iters.rbegin()->first, 12);
  EXPECT_THAT(log.evals, ElementsAre(0, 5, 10));
  EXPECT_EQ(fs::read_symlink(run("a") / "last"), "ckpt-000013");
}

TEST_F(TrainerTest, FirstLossIsNearThatOfAUniformGuess) {
  Log log;
  train("a", tiny(), log);
  EXPECT_NEAR(log.iters[0], std::log(static_cast<double>(dataset.vocab().size())), 0.1);
  EXPECT_LT(log.iters[12], log.iters[0] - 0.1);
}

TEST_F(TrainerTest, AStopAndAResumeEqualTheStraightRunToTheBit) {
  Log straight;
  train("straight", tiny(), straight);
  for (int64_t stop_at = 0; stop_at < 12; ++stop_at) {
    const std::string name = "cut" + std::to_string(stop_at);
    Log log;
    TrainSettings first = tiny();
    first.max_iters = stop_at;
    train(name, first, log);
    EXPECT_EQ(resume(name, tiny(), log), StopReason::kFinished);
    EXPECT_EQ(log.iters, straight.iters) << stop_at;
    EXPECT_EQ(log.evals, straight.evals) << stop_at;
    EXPECT_EQ(last_files(name), last_files("straight")) << stop_at;
  }
}

TEST_F(TrainerTest, ASignalDuringAnEvaluationDropsIt) {
  Log straight;
  train("straight", tiny(), straight);
  // Each evaluation looks four times, each iteration once.
  for (int calls = 0; calls < 25; ++calls) {
    const std::string name = "signal" + std::to_string(calls);
    Log log;
    int count = 0;
    const StopReason reason = train(name, tiny(), log, [&] { return ++count > calls ? 2 : 0; });
    EXPECT_EQ(reason, StopReason::kSignal);
    resume(name, tiny(), log);
    EXPECT_EQ(log.iters, straight.iters) << calls;
    EXPECT_EQ(log.evals, straight.evals) << calls;
    EXPECT_EQ(last_files(name), last_files("straight")) << calls;
  }
}

TEST_F(TrainerTest, TimeLimitStopsAndSaves) {
  TrainSettings s = tiny();
  s.max_iters = 1'000'000'000;
  s.max_seconds = 0.2;
  Log log;
  EXPECT_EQ(train("a", s, log), StopReason::kTimeIsUp);
  EXPECT_TRUE(fs::exists(run("a") / "last" / "model.safetensors"));
}

TEST_F(TrainerTest, AShortRunWithoutAnyLaterEvaluationStillSaves) {
  TrainSettings s = tiny();
  s.max_iters = 3;
  s.eval_interval = 1000;
  Log log;
  train("a", s, log);
  EXPECT_EQ(fs::read_symlink(run("a") / "last"), "ckpt-000004");
}

TEST_F(TrainerTest, BestKeepsTheLowestValidationLoss) {
  Log log;
  TrainSettings s = tiny();
  s.learning_rate = 0.05;
  std::vector<EvalMetrics> evals;
  RunFolder folder = RunFolder::start(run("a"), false);
  TrainEvents events;
  events.on_eval = [&](const EvalMetrics& m) { evals.push_back(m); };
  Trainer(s, dataset, events).run(folder);
  const auto best = std::min_element(
      evals.begin(), evals.end(),
      [](const EvalMetrics& a, const EvalMetrics& b) { return a.val_loss < b.val_loss; });
  EXPECT_EQ(fs::read_symlink(run("a") / "best"), fmt::format("ckpt-{:06}", best->iter));
}

TEST_F(TrainerTest, AccumulationEqualsOneLargeBatch) {
  // The training split holds one symbol alone, so that all windows are alike and four
  // micro-batches of two rows see what one batch of eight sees.
  const data::Dataset same = data::Dataset::load(dir.write("same", std::string(500, 'a') + "b"));
  TrainSettings large = tiny();
  large.dropout = 0;
  large.max_iters = 4;
  large.eval_interval = 1000;
  large.batch_size = 8;
  large.gradient_accumulation_steps = 1;
  TrainSettings small = large;
  small.batch_size = 2;
  small.gradient_accumulation_steps = 4;
  std::map<int64_t, IterMetrics> one, four;
  for (auto* run_of : {&one, &four}) {
    TrainEvents events;
    events.on_iter = [run_of](const IterMetrics& m) { run_of->emplace(m.iter, m); };
    RunFolder folder = RunFolder::start(run(run_of == &one ? "one" : "four"), false);
    Trainer(run_of == &one ? large : small, same, events).run(folder);
  }
  EXPECT_NEAR(one.at(0).loss, std::log(2.0), 0.1);  // an untrained guess between two symbols
  for (const auto& [iter, m] : one) {
    EXPECT_NEAR(m.loss, four.at(iter).loss, 1e-6) << iter;
    EXPECT_NEAR(m.grad_norm, four.at(iter).grad_norm, 1e-5) << iter;
  }
}

TEST_F(TrainerTest, GradientsDoNotGrowFromStepToStep) {
  // At rate 0 on a text of period 2 all batches are nearly alike; gradients that were kept would
  // be ten times as large in the end.
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "ab";
  }
  const data::Dataset periodic = data::Dataset::load(dir.write("periodic", text));
  TrainSettings s = tiny();
  s.dropout = 0;
  s.learning_rate = s.min_lr = 0;
  s.max_iters = 9;
  s.batch_size = 64;
  s.eval_interval = 1000;
  std::map<int64_t, double> norms;
  TrainEvents events;
  events.on_iter = [&](const IterMetrics& m) { norms[m.iter] = m.grad_norm; };
  RunFolder folder = RunFolder::start(run("a"), false);
  Trainer(s, periodic, events).run(folder);
  EXPECT_GT(norms[0], 0);
  EXPECT_NEAR(norms[9] / norms[0], 1, 0.3);
}

TEST_F(TrainerTest, DropoutIsOffInEvaluationAndOnAfterIt) {
  TrainSettings s = tiny();
  s.dropout = 0.5;
  Trainer trainer(s, dataset, {});
  const EvalMetrics first = trainer.evaluate_only(), second = trainer.evaluate_only();
  EXPECT_EQ(first.val_loss, second.val_loss);
  EXPECT_TRUE(trainer.model().is_training());
}

TEST_F(TrainerTest, AFailedSaveIsToldAndTriedAgain) {
  std::vector<std::string> warnings;
  Log log;
  TrainEvents events = log.events();
  events.on_warning = [&](const std::string& w) { warnings.push_back(w); };
  events.on_iter = [&](const IterMetrics& m) {
    if (m.iter == 7) {
      fs::rename(run("a"), run("gone"));
    }
    if (m.iter == 11) {
      fs::rename(run("gone"), run("a"));
    }
  };
  RunFolder folder = RunFolder::start(run("a"), false);
  EXPECT_EQ(Trainer(tiny(), dataset, events).run(folder), StopReason::kFinished);
  EXPECT_EQ(warnings.size(), 1u);  // the evaluation at 10
  EXPECT_EQ(fs::read_symlink(run("a") / "last"), "ckpt-000013");
}

TEST_F(TrainerTest, AFailedCleaningIsToldOnce) {
  std::vector<std::string> warnings;
  Log log;
  TrainEvents events = log.events();
  events.on_warning = [&](const std::string& w) { warnings.push_back(w); };
  events.on_iter = [&](const IterMetrics& m) {
    if (m.iter == 1) {
      fs::remove(run("a") / "best");
      fs::create_directory(run("a") / "best");
    }
  };
  TrainSettings s = tiny();
  s.eval_interval = 2;
  RunFolder folder = RunFolder::start(run("a"), false);
  EXPECT_EQ(error_text<std::runtime_error>([&] { Trainer(s, dataset, events).run(folder); }),
            (run("a") / "best").string() + " could not be pointed to the best checkpoint");
  EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("best is in the way")));
  EXPECT_LE(checkpoints(run("a")).size(), 2U);
}

TEST_F(TrainerTest, AFailedLastSaveIsAnErrorAndTheOldCheckpointRemains) {
  Log log;
  TrainEvents events = log.events();
  events.on_iter = [&](const IterMetrics& m) {
    if (m.iter == 12) {
      fs::rename(run("a"), run("gone"));
    }
  };
  RunFolder folder = RunFolder::start(run("a"), false);
  Trainer trainer(tiny(), dataset, events);
  EXPECT_EQ(error_text<std::runtime_error>([&] { trainer.run(folder); }),
            "the last checkpoint could not be saved");
  EXPECT_EQ(fs::read_symlink(run("gone") / "last"), "ckpt-000010");
  read_model(run("gone") / "last");
}

TEST_F(TrainerTest, WhatCouldNotBeSavedIsNotTheBest) {
  TrainSettings s = tiny();
  s.eval_interval = 2;
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  std::map<int64_t, double> losses;
  int64_t failing = -1;  // the evaluation whose save fails
  TrainEvents events;
  events.on_eval = [&](const EvalMetrics& m) {
    losses[m.iter] = m.val_loss;
    if (m.iter == failing) {
      fs::rename(run("b"), run("gone"));
    }
  };
  events.on_iter = [&](const IterMetrics& m) {
    if (m.iter == failing) {
      fs::rename(run("gone"), run("b"));
    }
  };
  RunFolder straight = RunFolder::start(run("a"), false);
  Trainer(s, dataset, events).run(straight);
  failing = std::min_element(losses.begin(), losses.end(), less)->first;
  RunFolder disturbed = RunFolder::start(run("b"), false);
  Trainer(s, dataset, events).run(disturbed);
  losses.erase(failing);
  const int64_t best = std::min_element(losses.begin(), losses.end(), less)->first;
  EXPECT_EQ(fs::read_symlink(run("a") / "best"), fmt::format("ckpt-{:06}", failing));
  EXPECT_EQ(fs::read_symlink(run("b") / "best"), fmt::format("ckpt-{:06}", best));
}

TEST_F(TrainerTest, ALostBestIsFollowedByTheNextEvaluation) {
  Log log;
  TrainSettings s = tiny();
  s.max_iters = 4;
  train("a", s, log);
  fs::remove(run("a") / "best");
  fs::remove_all(run("a") / "ckpt-000000");
  s.learning_rate = s.min_lr = 0.5;  // no later evaluation is as good
  s.max_iters = 5;
  RunFolder folder = RunFolder::resume(run("a"));
  Trainer trainer = Trainer::resume(s, dataset, find_checkpoint(run("a"), "last"), log.events());
  trainer.set_best_val_loss({});
  trainer.run(folder);
  EXPECT_EQ(fs::read_symlink(run("a") / "best"), "ckpt-000005-2");
}

TEST_F(TrainerTest, DropoutBatchSizeAndDtypeMayChangeOnResume) {
  for (const std::string change : {"dropout", "batch_size", "dtype"}) {
    Log log;
    TrainSettings s = tiny();
    s.max_iters = 4;
    train(change, s, log);
    s.max_iters = 12;
    s.dropout = change == "dropout" ? 0.5 : s.dropout;
    s.batch_size = change == "batch_size" ? 6 : s.batch_size;
    s.dtype = change == "dtype" ? "float64" : s.dtype;
    EXPECT_EQ(resume(change, s, log), StopReason::kFinished) << change;
    EXPECT_EQ(log.iters.size(), 13u) << change;
  }
}

TEST_F(TrainerTest, Float64ResumesToTheBit) {
  TrainSettings s = tiny();
  s.dtype = "float64";
  Log straight, cut;
  train("straight", s, straight);
  TrainSettings first = s;
  first.max_iters = 7;
  train("cut", first, cut);
  resume("cut", s, cut);
  EXPECT_EQ(cut.iters, straight.iters);
  EXPECT_EQ(last_files("cut"), last_files("straight"));
}

TEST_F(TrainerTest, ResumeRefusesAnotherModelAndAnotherVocabulary) {
  Log log;
  train("a", tiny(), log);
  TrainSettings wider = tiny();
  wider.n_embd = 32;
  EXPECT_THROW(resume("a", wider, log), std::runtime_error);
  const data::Dataset other = data::Dataset::load(dir.write("other", some_text() + "#"));
  const auto resume_with_other = [&] {
    Trainer::resume(tiny(), other, find_checkpoint(run("a"), "last"), {});
  };
  EXPECT_THAT(error_text<std::runtime_error>(resume_with_other), HasSubstr("symbols are not the"));
}

TEST_F(TrainerTest, MemoryStaysFlatOverSteps) {
  TrainSettings s = tiny();
  s.max_iters = 400;
  s.eval_interval = 1000;
  std::map<int64_t, int64_t> in_use;
  TrainEvents events;
  events.on_iter = [&](const IterMetrics& m) {
    in_use[m.iter] = memory_stats().in_use + memory_stats().kept;
  };
  RunFolder folder = RunFolder::start(run("a"), false);
  Trainer(s, dataset, events).run(folder);
  EXPECT_EQ(in_use[20], in_use[400]);
}

// The memory is short while a checkpoint is saved, and there again when that has been told.
TEST_F(TrainerTest, ASaveWithoutMemoryLeavesTheTrainingAsItWas) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer takes more addresses than a limit could be set to";
  }
  TrainSettings s = tiny();
  s.n_embd = 64;
  s.batch_size = 1024;  // tensors of 2 MiB, which come from the system at once
  s.gradient_accumulation_steps = 1;
  s.max_iters = 2;
  Log straight, log;
  train("straight", s, straight);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::vector<std::string> warnings;
  TrainEvents events = log.events();
  events.on_eval = [&](const EvalMetrics& m) {
    log.evals.push_back(m.iter);
    release_kept_memory();
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit now = {pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &now), 0);
  };
  events.on_warning = [&](const std::string& text) {
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    warnings.push_back(text);
  };
  RunFolder folder = RunFolder::start(run("a"), false);
  Trainer(s, dataset, events).run(folder);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("the model before iteration 0 is not saved: tensor: "
                                              "out of memory, cannot allocate ")));
  EXPECT_EQ(log.iters, straight.iters);
  EXPECT_EQ(last_files("a").at("model.safetensors"),
            last_files("straight").at("model.safetensors"));
}

}  // namespace
}  // namespace chargrad::train
