// Losses, gradients and weights that are not finite.
#include <gmock/gmock.h>

#include "tests/error_text.h"
#include "tests/train/trainer_fixture.h"

namespace chargrad::train {
namespace {

using testing::HasSubstr;

// Updates so large that the model overflows: at 1e10 its losses, at 1e30 its gradients only.
TrainSettings diverging(double learning_rate) {
  TrainSettings s = tiny();
  s.learning_rate = learning_rate;
  s.grad_clip = 0;
  s.decay_lr = false;
  return s;
}

TEST_F(TrainerTest, ANonFiniteLossStopsTheRunAndKeepsTheCheckpoint) {
  TrainSettings s = diverging(1e30);
  Log log;
  EXPECT_THAT(error_text<std::runtime_error>([&] { train("a", s, log); }),
              HasSubstr("is not finite at iteration "));
  expect_finite_weights("a");
}

// An evaluation finds it before the next step does, and would save it.
TEST_F(TrainerTest, AModelWhoseEvaluationIsNotFiniteIsNotSaved) {
  TrainSettings s = diverging(1e10);
  s.eval_interval = 1;
  std::vector<std::string> warnings;
  Log log;
  TrainEvents events = log.events();
  events.on_warning = [&](const std::string& w) { warnings.push_back(w); };
  std::map<int64_t, double> val_losses;
  events.on_eval = [&](const EvalMetrics& m) { val_losses[m.iter] = m.val_loss; };
  RunFolder folder = RunFolder::start(run("a"), false);
  const std::string error =
      error_text<std::runtime_error>([&] { Trainer(s, dataset, events).run(folder); });
  EXPECT_THAT(warnings,
              testing::ElementsAre("the model before iteration 1 is not saved: its loss is "
                                   "not finite"));
  const std::string last = fs::read_symlink(run("a") / "last").string();
  EXPECT_THAT(error, HasSubstr((run("a") / "last").string() + " holds the model before iteration " +
                               last.substr(last.size() - 1)));
  for (const auto& [iter, loss] : val_losses) {
    EXPECT_EQ(std::isfinite(loss), iter <= last.back() - '0') << iter;
  }
}

TEST_F(TrainerTest, ARunThatSkipsToItsEndWithoutAFiniteLossSavesNothing) {
  TrainSettings s = diverging(1e10);
  s.skip_nonfinite = 100;
  Log log;
  EXPECT_EQ(error_text<std::runtime_error>([&] { train("a", s, log); }),
            "the last checkpoint could not be saved; " + (run("a") / "last").string() +
                " holds the model before iteration 0");
  expect_finite_weights("a");
}

// Nothing looks at the model that the last update makes but the save.
TEST_F(TrainerTest, AnUpdateThatBreaksTheModelIsNotSavedAtTheEnd) {
  TrainSettings s = diverging(1e10);
  s.max_iters = 0;
  Log log;
  EXPECT_EQ(error_text<std::runtime_error>([&] { train("a", s, log); }),
            "the last checkpoint could not be saved; " + (run("a") / "last").string() +
                " holds the model before iteration 0");
  EXPECT_EQ(fs::read_symlink(run("a") / "last"), "ckpt-000000");
}

TEST_F(TrainerTest, AnUpdateThatIsPassedOverAtTheEndIsNoFault) {
  TrainSettings s = diverging(1e30);  // finite losses, but no finite gradients
  s.skip_nonfinite = 100;
  Log log;
  EXPECT_EQ(train("a", s, log), StopReason::kFinished);
  EXPECT_EQ(fs::read_symlink(run("a") / "last"), "ckpt-000013");
}

TEST_F(TrainerTest, NonFiniteUpdatesAreNamedAndSkippedUpToTheLimit) {
  TrainSettings s = diverging(1e30);
  s.skip_nonfinite = 2;
  std::vector<std::string> warnings;
  Log log;
  TrainEvents events = log.events();
  events.on_warning = [&](const std::string& w) { warnings.push_back(w); };
  RunFolder folder = RunFolder::start(run("a"), false);
  EXPECT_THROW(Trainer(s, dataset, events).run(folder), std::runtime_error);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], testing::ContainsRegex("not finite at iteration [0-9]+: .* \\(op '"));
  EXPECT_THAT(warnings[0], HasSubstr("the update is passed over"));
}

// With 1e30 each update after the first is passed over.
TEST_F(TrainerTest, SkippedUpdatesAreCountedOverTheWholeRun) {
  TrainSettings s = diverging(1e30);
  s.skip_nonfinite = 6;
  s.max_iters = 4;
  Log log;
  EXPECT_EQ(train("a", s, log), StopReason::kFinished);
  s.max_iters = 12;
  EXPECT_THAT(error_text<std::runtime_error>([&] { resume("a", s, log); }),
              HasSubstr("is not finite at iteration 7: "));
}

// The loss does not see the row of a symbol that is in no batch.
TEST_F(TrainerTest, WeightsThatAreNotFiniteAreNotSaved) {
  const data::Dataset text = data::Dataset::load(dir.write("rare", dir.read("text") + "@"));
  TrainSettings s = tiny();
  s.model = "bigram";
  s.eval_interval = 100;
  RunFolder folder = RunFolder::start(run("a"), false);
  Log log;
  TrainEvents events = log.events();
  Tensor weight;
  events.on_iter = [&](const IterMetrics&) {
    const NoGradGuard no_grad;
    fill_(weight.select(0, text.vocab().encode("@").at(0)), NAN);
  };
  Trainer trainer(s, text, events);
  weight = trainer.model().parameters().at(0);
  EXPECT_EQ(error_text<std::runtime_error>([&] { trainer.run(folder); }),
            "the last checkpoint could not be saved; " + (run("a") / "last").string() +
                " holds the model before iteration 0");
  expect_finite_weights("a");
}

TEST_F(TrainerTest, WeightsThatAreNotFiniteAreNotGoneOnWith) {
  Log log;
  train("a", tiny(), log);
  const fs::path file = run("a") / "last/model.safetensors";
  std::string bytes = read_whole_file(file, 1 << 20);
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
  replace_file(file, bytes);
  EXPECT_THAT(error_text<std::runtime_error>([&] { resume("a", tiny(), log); }),
              testing::MatchesRegex(file.string() + ": [a-z0-9_.]+ holds a NaN or an infinity"));
}

}  // namespace
}  // namespace chargrad::train
