// Which checkpoint of a run is the best, what leads to it and to the last, and what is kept.
#include "train/checkpoints.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "tests/error_text.h"
#include "tests/train/run_folder_fixture.h"
#include "train/run_folder.h"

namespace chargrad::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class CheckpointsTest : public RunFolderTest {};

TEST_F(CheckpointsTest, ACopyWithoutItsLinksGoesOn) {
  for (const bool has_checkpoints : {true, false}) {
    for (const std::vector<std::string>& links :
         std::vector<std::vector<std::string>>{{"last"}, {"best"}, {"last", "best"}}) {
      fs::remove_all(run());
      RunFolder folder = RunFolder::start(run(), false);
      save(folder, 3, 2, "a");
      save(folder, 5, 3, "b");
      for (const std::string& link : links) {
        const fs::path target = fs::canonical(run() / link);
        fs::remove(run() / link);
        fs::copy(target, run() / link);
        if (!has_checkpoints) {
          fs::remove_all(target);
        }
      }
      EXPECT_EQ(settle(folder, {}), 2);
      EXPECT_EQ(dir.read("run/last/model.safetensors"), "b");
      EXPECT_EQ(dir.read("run/best/model.safetensors"), "a");
      EXPECT_TRUE(fs::is_symlink(run() / "last") && fs::is_symlink(run() / "best"));
      EXPECT_EQ(names().size(), 5U) << testing::PrintToString(names());
    }
  }
}

TEST_F(CheckpointsTest, ACopyInThePlaceOfALinkDuringTheRunIsACheckpoint) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  for (const char* link : {"last", "best"}) {
    fs::remove(run() / link);
    fs::copy(run() / "ckpt-000003", run() / link);
  }
  save(folder, 5, 3, "b");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000003-3", "ckpt-000005", "last", "lock"));
  EXPECT_EQ(dir.read("run/best/model.safetensors"), "a");
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "b");
}

TEST_F(CheckpointsTest, ACopyWithoutItsLinksIsReplacedWhereThatIsAsked) {
  {
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
  }
  fs::remove(run() / "best");
  fs::copy(run() / "ckpt-000003", run() / "best");
  EXPECT_THAT(start_error(), HasSubstr("holds a run already (last)"));
  RunFolder::start(run(), true);
  EXPECT_THAT(names(), ElementsAre("lock"));
}

TEST_F(CheckpointsTest, WhatIsInTheWayStaysAndIsTold) {
  for (const char* name : {"last", "best", "pending-checkpoint", "last.tmp", "best.tmp"}) {
    fs::remove_all(run());
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
    fs::remove(run() / name);
    const std::string precious = dir.write(fmt::format("run/{}/precious", name), "");
    const std::string message =
        (run() / name).string() +
        " is in the way and no part of a run; move it, or use another --out_dir";
    const auto before = names();
    EXPECT_EQ(error_text<std::runtime_error>([&] { settle(folder, 2); }), message);
    EXPECT_EQ(names(), before);
    for (const int64_t iter : {5, 7, 9}) {
      EXPECT_EQ(error_text<std::runtime_error>([&] { save(folder, iter, 3, "b"); }), message);
    }
    EXPECT_TRUE(fs::exists(precious));
    EXPECT_TRUE(fs::exists(run() / "ckpt-000003/model.safetensors"));
    EXPECT_LE(checkpoints(run()).size(), 2U) << name;
  }
}

TEST_F(CheckpointsTest, ALinkMayBeWrittenInAnyWay) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, kNotEvaluated, "b");
  fs::remove(run() / "best");
  fs::remove(run() / "last");
  fs::create_symlink("./ckpt-000003/", run() / "best");
  fs::create_symlink(run() / "ckpt-000005", run() / "last");
  settle(folder, {});
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000003", "ckpt-000005", "last", "lock"));
}

TEST_F(CheckpointsTest, TheBestIsFoundAgain) {
  for (const char* link : {"", "ckpt-000004", "best", ".", "empty", "last", "ckpt-000005"}) {
    fs::remove_all(run());
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
    save(folder, 5, kNotEvaluated, "b");
    fs::create_directory(run() / "empty");
    fs::remove(run() / "best");
    if (*link != '\0') {
      fs::create_symlink(link, run() / "best");
    }
    EXPECT_EQ(settle(folder, 2), 2) << link;
    EXPECT_EQ(fs::read_symlink(run() / "best"), "ckpt-000003") << link;
    save(folder, 9, 4, "c");
    EXPECT_EQ(dir.read("run/best/model.safetensors"), "a") << link;
  }
}

TEST_F(CheckpointsTest, TheBestThatIsGoneIsNotClaimed) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 3, "b");
  fs::remove_all(run() / "ckpt-000003");
  EXPECT_EQ(settle(folder, 2), 3);
  EXPECT_EQ(fs::read_symlink(run() / "best"), "ckpt-000005");
  save(folder, 7, kNotEvaluated, "c");
  fs::remove_all(run() / "ckpt-000005");
  EXPECT_EQ(settle(folder, 2), std::nullopt);
  EXPECT_EQ(fs::read_symlink(run() / "last"), "ckpt-000007");
  EXPECT_EQ(save(folder, 9, 4, "d"), 4);
}

TEST_F(CheckpointsTest, OfEqualLossesTheFirstIsTheBest) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 2, "b");
  EXPECT_EQ(fs::read_symlink(run() / "best"), "ckpt-000003");
}

TEST_F(CheckpointsTest, ACheckpointTakesThePlaceOfNoOtherOfItsIteration) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 10, 2, "a");
  save(folder, 10, kNotEvaluated, "b");
  EXPECT_EQ(fs::read_symlink(run() / "last"), "ckpt-000010-2");
  save(folder, 10, 3, "c");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000010", "ckpt-000010-3", "last", "lock"));
  EXPECT_EQ(dir.read("run/best/model.safetensors"), "a");
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "c");
  dir.write("run/ckpt-000012/precious", "");
  save(folder, 12, 3, "d");
  EXPECT_TRUE(fs::exists(run() / "ckpt-000012/precious"));
}

TEST_F(CheckpointsTest, TheBestStaysWhateverItLacksBesidesItsModel) {
  for (const char* name : {"config.json", "vocab.json", "trainer.safetensors", "trainer.json"}) {
    for (const bool is_linked : {true, false}) {
      fs::remove_all(run());
      RunFolder folder = RunFolder::start(run(), false);
      save(folder, 3, 2, "a");
      save(folder, 5, 3, "b");
      fs::remove(run() / "ckpt-000003" / name);
      if (!is_linked) {
        fs::remove(run() / "best");
      }
      const bool is_known = name != std::string("trainer.json") || is_linked;
      EXPECT_EQ(settle(folder, 2), is_known ? 2 : 3) << name;
      EXPECT_EQ(dir.read("run/best/model.safetensors"), is_known ? "a" : "b");
      EXPECT_EQ(dir.read("run/ckpt-000003/model.safetensors"), "a");
    }
  }
}

TEST_F(CheckpointsTest, AFolderWithoutAModelIsNotTheBest) {
  for (const bool is_empty : {true, false}) {
    fs::remove_all(run());
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
    save(folder, 5, 3, "b");
    if (is_empty) {
      dir.write("run/ckpt-000003/model.safetensors", "");
    } else {
      fs::remove(run() / "ckpt-000003/model.safetensors");
    }
    EXPECT_EQ(settle(folder, 2), 3);
    EXPECT_THAT(names(), ElementsAre("best", "ckpt-000005", "last", "lock"));
  }
}

// Of what cannot be read nothing is known; it stays, and the rest is done all the same.
TEST_F(CheckpointsTest, OneThatCannotBeReadHindersNothing) {
  for (const bool is_linked : {true, false}) {
    fs::remove_all(run());
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
    const fs::path file = run() / "ckpt-000003/trainer.json";
    fs::remove(file);
    fs::create_symlink("trainer.json", file);
    if (!is_linked) {
      fs::remove(run() / "best");
    }
    for (const int64_t iter : {5, 7, 9}) {
      folder.save(iter, [&](const fs::path& path) {
        write_checkpoint(path, iter, 10.0 - static_cast<double>(iter), "b");
      });
      const RunFolder::Cleaned cleaned = folder.clean(2);
      EXPECT_EQ(cleaned.failure,
                "cannot read " + file.string() + ": Too many levels of symbolic links");
      EXPECT_EQ(cleaned.best_val_loss, is_linked && iter < 9 ? 2 : 10 - iter);
      EXPECT_TRUE(cleaned.best_is_linked);
    }
    EXPECT_EQ(fs::read_symlink(run() / "best"), "ckpt-000009");
    EXPECT_THAT(names(), ElementsAre("best", "ckpt-000003", "ckpt-000009", "last", "lock"));
  }
}

TEST_F(CheckpointsTest, ALossThatCannotBeReadIsNotKnown) {
  for (const char* text :
       {R"({"eval_done": false, "val_loss": "abc"})", R"({"eval_done": true, "val_loss": null})",
        R"({"eval_done": true})", R"({"val_loss": null})", "[]", "{"}) {
    const fs::path file = dir.write("c/trainer.json", text);
    EXPECT_FALSE(evaluation_of(dir.path("c")).is_known) << text;
  }
  dir.write("c/trainer.json", R"({"eval_done": false, "val_loss": null})");
  EXPECT_TRUE(evaluation_of(dir.path("c")).is_known);
}

TEST_F(CheckpointsTest, AFolderInThePlaceOfAFileIsSomeoneElses) {
  for (const char* part : {"config.json", "model.safetensors"}) {
    fs::remove_all(run());
    std::optional<RunFolder> folder = RunFolder::start(run(), false);
    save(*folder, 3, 2, "a");
    save(*folder, 5, 3, "b");
    fs::copy(run() / "ckpt-000005", run() / "ckpt-000004");
    fs::remove(run() / "ckpt-000004" / part);
    const std::string precious = dir.write(fmt::format("run/ckpt-000004/{}/precious", part), "");
    EXPECT_EQ(settle(*folder, 2), 2);
    EXPECT_TRUE(fs::exists(precious));
    folder.reset();
    EXPECT_THAT(start_error(true), HasSubstr("ckpt-000004 is in the way"));
  }
}

// A crash between the two names that a copied `last` gets: it was put there to go on from.
TEST_F(CheckpointsTest, ACopyThatIsHalfRestoredIsStillTheLast) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 3, "b");
  fs::remove(run() / "last");
  fs::create_symlink("ckpt-000003", run() / "last.tmp");
  EXPECT_EQ(find_checkpoint(run(), "last"), run() / "ckpt-000003");
  settle(folder, 2);
  EXPECT_EQ(fs::read_symlink(run() / "last"), "ckpt-000003");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000003", "last", "lock"));
}

TEST_F(CheckpointsTest, WithoutALinkTheNewestThatHoldsAModelIsTheLast) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 3, "b");
  fs::create_directory(run() / "ckpt-999999");
  dir.write("elsewhere/model.safetensors", "c");
  fs::create_symlink("../elsewhere", run() / "ckpt-000099");
  for (const char* link : {"", "last", "ckpt-000007"}) {
    fs::remove(run() / "last");
    if (*link != '\0') {
      fs::create_symlink(link, run() / "last");
    }
    EXPECT_EQ(find_checkpoint(run(), "last"), run() / "ckpt-000005");
  }
}

TEST_F(CheckpointsTest, OfEqualLossesTheOneThatIsKnownIsTheBest) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 3, "b");
  dir.write("run/ckpt-000005/trainer.json", "{");
  fs::remove(run() / "best");
  fs::create_symlink("ckpt-000005", run() / "best");
  EXPECT_EQ(settle(folder, 2), 2);
  EXPECT_EQ(dir.read("run/best/model.safetensors"), "a");
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "b");
}

TEST_F(CheckpointsTest, WhatMayBeTheBestIsNotRemoved) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  dir.write("run/ckpt-000003/trainer.json", R"({"next_iter": 3, "eval_done": true})");
  EXPECT_EQ(clean(folder, 2), 2);  // the link counts
  folder.save(5, [](const fs::path& path) { write_checkpoint(path, 5, 3, "b"); });
  EXPECT_EQ(clean(folder, 2), 2);
  EXPECT_EQ(fs::read_symlink(run() / "best"), "ckpt-000003");
  fs::remove(run() / "best");
  EXPECT_EQ(save(folder, 7, 4, "c"), 3);
  EXPECT_THAT(names(),
              ElementsAre("best", "ckpt-000003", "ckpt-000005", "ckpt-000007", "last", "lock"));
}

TEST_F(CheckpointsTest, NoCheckpointIsRemovedWhileLastLeadsNowhere) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 3, "b");
  fs::create_directory(run() / "ckpt-000004");
  fs::remove(run() / "last");
  const auto before = names();
  clean(folder, 2);
  EXPECT_EQ(names(), before);
}

TEST_F(CheckpointsTest, ALinkOutOfTheFolderIsRefused) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  save(folder, 5, 3, "b");
  for (const char* link : {".", "../other"}) {
    fs::create_directories(dir.path("other"));
    fs::remove(run() / "last");
    fs::create_symlink(link, run() / "last");
    const auto before = names();
    EXPECT_EQ(
        error_text<std::runtime_error>([&] { settle(folder, 2); }),
        (run() / "last").string() + " leads to " + link + ", which is no checkpoint of this run");
    EXPECT_EQ(names(), before);
  }
}

}  // namespace
}  // namespace chargrad::train
