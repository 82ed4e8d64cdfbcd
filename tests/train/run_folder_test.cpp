// The run folder: what may be started, gone on with and removed, and what a crash leaves.
#include "train/run_folder.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <functional>
#include <stdexcept>
#include <utility>

#include "tests/error_text.h"
#include "tests/temp_folder.h"
#include "tests/train/run_folder_fixture.h"
#include "train/checkpoints.h"

namespace {

std::function<void()> while_room_is_asked_for;  // called once

}  // namespace

// In the place of the system's, which it calls.
extern "C" int statvfs(const char* path, struct statvfs* disk) noexcept {
  if (const auto f = std::exchange(while_room_is_asked_for, nullptr)) {
    f();
  }
  const auto of_system = reinterpret_cast<decltype(&statvfs)>(dlsym(RTLD_NEXT, "statvfs"));
  return of_system(path, disk);
}

namespace chargrad::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

constexpr const char* kSettings = "{\n  \"version\": 1\n}\n";

TEST_F(RunFolderTest, KeepsWhatTheLinksName) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 0, 2, "a");
  save(folder, 5, 3, "b");
  save(folder, 10, 3, "c");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000000", "ckpt-000010", "last", "lock"));
  save(folder, 10, 2.5, "d");  // the same iteration, after its evaluation
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "d");
  EXPECT_EQ(dir.read("run/best/model.safetensors"), "a");
  save(folder, 1'000'000, 1.5, "e");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-1000000", "last", "lock"));
}

TEST_F(RunFolderTest, AFailedSaveLeavesEverythingAsItWas) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 0, 2, "a");
  const auto before = names();
  EXPECT_THROW(folder.save(5,
                           [](const fs::path& path) {
                             write_file(path / "model.safetensors", "b");
                             throw std::runtime_error("no");
                           }),
               std::runtime_error);
  EXPECT_EQ(names(), before);
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "a");
}

TEST_F(RunFolderTest, TwoRunsInOneFolderAreRefused) {
  const RunFolder folder = RunFolder::start(run(), false);
  EXPECT_EQ(start_error(true), run().string() + " is in use by another training run");
}

// Between the first look at the folder and the lock, which is when the disk's room is asked for.
TEST_F(RunFolderTest, ARunThatComesAndGoesInBetweenIsNotRemoved) {
  while_room_is_asked_for = [&] {
    RunFolder other = RunFolder::start(run(), false);
    save(other, 5, 2, "a");
  };
  EXPECT_THAT(start_error(false), HasSubstr("run holds a run already (last)"));
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "a");
  EXPECT_NO_THROW(RunFolder::start(run(), true));
}

TEST_F(RunFolderTest, ARunIsReplacedOnlyWhenThatIsAsked) {
  {
    RunFolder folder = RunFolder::start(run(), false);
    folder.set_settings(kSettings);
    folder.write_settings();
    save(folder, 3, 2, "a");
  }
  dir.write("run/mine.txt", "stays");
  EXPECT_EQ(start_error(), run().string() +
                               " holds a run already (last); --resume goes on with it, "
                               "--overwrite replaces it, another --out_dir leaves it");
  RunFolder::start(run(), true);
  EXPECT_THAT(names(), ElementsAre("lock", "mine.txt"));
}

TEST_F(RunFolderTest, WhatCameToNoCheckpointIsNoRun) {
  {
    RunFolder folder = RunFolder::start(run(), false);
    folder.set_settings(kSettings);
    folder.write_settings();
    dir.write("run/metrics.jsonl", "{\"kind\":\"eval\"}\n");
    fs::create_directory(run() / "pending-checkpoint");
  }
  RunFolder::start(run(), false);
  EXPECT_THAT(names(), ElementsAre("lock"));
}

TEST_F(RunFolderTest, SettingsBesideNoLockAreARunsOfElsewhere) {
  dir.write("run/settings.json", kSettings);
  EXPECT_THAT(start_error(), HasSubstr("holds a run already (settings.json)"));
}

// Each has a name of a run's and is none: it stays, with --overwrite too.
TEST_F(RunFolderTest, WhatIsNoPartOfARunIsNeverRemoved) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"best/precious", ""},
      {"last/model.safetensors", ""},
      {"ckpt-000011/precious", ""},
      {"ckpt-000012", "a file"},
      {"pending-checkpoint/precious", ""},
      {"settings.json", "{\"editor\": true}"},
      {"metrics.jsonl", "{\"step\": 1}\n"},
      {"trace.json/precious", ""},
      {"trace.json", "[]"},
  };
  for (const auto& [name, text] : files) {
    for (const bool after_a_run : {false, true}) {
      fs::remove_all(run());
      if (after_a_run) {
        RunFolder::start(run(), false);
      }
      const std::string path = dir.write("run/" + name, text);
      const std::string taken = (run() / name.substr(0, name.find('/'))).string();
      for (const bool overwrite : {false, true}) {
        EXPECT_EQ(start_error(overwrite),
                  taken + " is in the way and no part of a run; move it, or use another --out_dir");
      }
      EXPECT_TRUE(fs::exists(path)) << name;
    }
  }
}

TEST_F(RunFolderTest, CleaningLeavesWhatIsNoCheckpoint) {
  RunFolder folder = RunFolder::start(run(), false);
  dir.write("run/ckpt-000002/precious", "");
  save(folder, 3, 2, "a");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000002", "ckpt-000003", "last", "lock"));
}

TEST_F(RunFolderTest, CleaningLeavesNamesThatNoRunWrites) {
  RunFolder folder = RunFolder::start(run(), false);
  for (const char* name : {"ckpt-2", "ckpt-0000002", "ckpt-000002-1", "ckpt-000002-02"}) {
    dir.write(std::string("run/") + name + "/model.safetensors", "");
  }
  save(folder, 3, 2, "a");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-0000002", "ckpt-000002-02", "ckpt-000002-1",
                                   "ckpt-000003", "ckpt-2", "last", "lock"));
}

// As cp -rL or scp -r make them: whichever of the two is copied, and whatever is beside it.
// What takes a name of a run's while it runs, or before it goes on, stays; no checkpoint is lost
// for it, and they do not pile up.
// Whatever became of the link: the files of the checkpoints say which one it is.
// And where it is gone, the best of the others is it; without another one nothing is.
// A run that went back to before its best checkpoint comes by that iteration again.
// What is missing may be found again; sample needs neither file of the trainer's.
// The stored loss is that of the true best; a link set by hand does not make another one it.
// A file that does not say how good its model is: written by an older version, or damaged.
TEST_F(RunFolderTest, SettingsComeWithTheSaveAfterThem) {
  RunFolder folder = RunFolder::start(run(), false);
  folder.set_settings("{}\n");
  const auto fail = [&] {
    folder.save(3, [](const fs::path&) { throw std::runtime_error("no"); });
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_FALSE(fs::exists(run() / "settings.json"));
  save(folder, 3, 2, "a");
  EXPECT_EQ(dir.read("run/settings.json"), "{}\n");
}

TEST_F(RunFolderTest, SettingsThatAreGoneComeWithTheNextSave) {
  RunFolder folder = RunFolder::start(run(), false);
  folder.set_settings(kSettings);
  save(folder, 0, 2, "a");
  fs::remove(run() / "settings.json");
  save(folder, 3, 1, "b");
  EXPECT_EQ(dir.read("run/settings.json"), kSettings);
  fs::remove(run() / "settings.json");
  folder.write_settings();
  EXPECT_EQ(dir.read("run/settings.json"), kSettings);
  for (const std::string& name : names()) {
    fs::remove_all(run() / name);
  }
  save(folder, 5, 3, "c");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000005", "last", "lock", "settings.json"));
}

TEST_F(RunFolderTest, WhatIsInTheWayOfTheSettingsHindersNoCheckpoint) {
  RunFolder folder = RunFolder::start(run(), false);
  folder.set_settings(kSettings);
  fs::create_directory(run() / "settings.json");
  const auto write = [](const fs::path& pending) {
    write_file(pending / "model.safetensors", "a");
  };
  const std::string message =
      (run() / "settings.json").string() +
      " is in the way and no part of a run; move it, or use another --out_dir";
  EXPECT_EQ(folder.save(3, write), message);
  EXPECT_EQ(dir.read("run/last/model.safetensors"), "a");
  EXPECT_EQ(error_text<std::runtime_error>([&] { folder.write_settings(); }), message);
  fs::remove(run() / "settings.json");
  EXPECT_EQ(folder.save(5, write), "");
  EXPECT_EQ(dir.read("run/settings.json"), kSettings);
}

TEST_F(RunFolderTest, ARefusedStartChangesNothing) {
  dir.write("run/settings.json", kSettings);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(start_error(), run().string() +
                                 " holds a run already (settings.json); --overwrite "
                                 "replaces it, another --out_dir leaves it");
  }
  EXPECT_THAT(names(), ElementsAre("settings.json"));
}

// A checkpoint that cannot be read may be all that leads to an older one.
TEST_F(RunFolderTest, ResumeRemovesNothing) {
  {
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
  }
  fs::copy(run() / "ckpt-000003", run() / "ckpt-000009");
  fs::remove(run() / "last");
  RunFolder::resume(run());
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000003", "ckpt-000009", "lock"));
}

TEST_F(RunFolderTest, CleaningRemovesWhatACrashLeft) {
  {
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 3, 2, "a");
  }
  dir.write("run/pending-checkpoint/config.json", "");
  fs::create_directories(run() / "ckpt-000009");
  for (const char* name : {"last.tmp", "best.tmp"}) {
    fs::create_symlink("ckpt-000009", run() / name);
  }
  dir.write("run/settings.json.tmp", "");
  RunFolder folder = RunFolder::resume(run());
  settle(folder, {});
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000003", "last", "lock"));
}

TEST_F(RunFolderTest, ACheckpointWithoutItsLinksIsFound) {
  {
    RunFolder folder = RunFolder::start(run(), false);
    save(folder, 0, 2, "a");
  }
  fs::remove(run() / "last");
  fs::remove(run() / "best");
  EXPECT_EQ(find_checkpoint(run(), ""), run() / "ckpt-000000");
  EXPECT_EQ(error_text<std::runtime_error>([&] { find_checkpoint(run(), "best"); }),
            (run() / "best").string() + " leads to none of the checkpoints ckpt-000000");
  EXPECT_THAT(start_error(), HasSubstr("holds a run already (ckpt-000000)"));
  RunFolder folder = RunFolder::resume(run());
  settle(folder, {});
  EXPECT_EQ(fs::read_symlink(run() / "last"), "ckpt-000000");
  EXPECT_EQ(fs::read_symlink(run() / "best"), "ckpt-000000");
}

TEST_F(RunFolderTest, CheckpointsAreOrderedByIterationAndTurn) {
  for (const char* name : {"ckpt-000010", "ckpt-000010-2", "ckpt-000010-11", "ckpt-000009-12",
                           "ckpt-999999", "ckpt-1000000"}) {
    dir.write(fmt::format("run/{}/model.safetensors", name), "x");
  }
  for (const char* name : {"ckpt-", "ckpt-x", "ckpt-2000000-", "ckpt-2000000-0", "ckpt--5",
                           "ckpt-2000000-2-2", "ckpt-99999999999999999999", "ckpt-2000000.bak"}) {
    dir.write(fmt::format("run/{}/model.safetensors", name), "x");
  }
  EXPECT_EQ(find_checkpoint(run(), ""), run() / "ckpt-1000000");
  fs::remove_all(run() / "ckpt-1000000");
  EXPECT_EQ(find_checkpoint(run(), ""), run() / "ckpt-999999");
  fs::remove_all(run() / "ckpt-999999");
  EXPECT_EQ(find_checkpoint(run(), ""), run() / "ckpt-000010-11");
  // What is no checkpoint's name stays where the run is replaced.
  RunFolder::start(run(), true);
  EXPECT_EQ(names().size(), 9U);
}

TEST_F(RunFolderTest, AFolderMadeAnewIsTakenWithTheSettings) {
  RunFolder folder = RunFolder::start(run(), false);
  folder.set_settings("{}\n");
  save(folder, 0, 2, "a");
  fs::remove_all(run());
  EXPECT_EQ(error_text<std::runtime_error>([&] { save(folder, 5, kNotEvaluated, "b"); }),
            "cannot read " + run().string() + ": No such file or directory");
  fs::create_directory(run());
  save(folder, 5, 2, "b");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000005", "last", "lock", "settings.json"));
  EXPECT_EQ(dir.read("run/settings.json"), "{}\n");
  // And where another run has taken the place, that one is left alone.
  fs::rename(run(), dir.path("aside"));
  const RunFolder other = RunFolder::start(run(), false);
  EXPECT_EQ(error_text<std::runtime_error>([&] { save(folder, 9, kNotEvaluated, "c"); }),
            run().string() + " is in use by another training run");
}

// Whoever's it is, and whether it is at work or done: no save, no settings, nothing removed.
TEST_F(RunFolderTest, AFolderThatHoldsAnotherRunIsLeftAlone) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 0, 2, "a");
  fs::rename(run(), dir.path("aside"));
  {
    RunFolder other = RunFolder::start(run(), false);
    save(other, 3, 4, "b");
    save(other, 5, 3, "c");
  }
  const auto before = names();
  folder.set_settings("{}\n");
  const std::string message =
      run().string() + " is not the folder that this run began in, and holds last; move it";
  EXPECT_EQ(error_text<std::runtime_error>([&] { save(folder, 9, 1, "d"); }), message);
  EXPECT_EQ(error_text<std::runtime_error>([&] { folder.write_settings(); }), message);
  EXPECT_FALSE(folder.has_checkpoint());
  EXPECT_EQ(names(), before);
  fs::remove_all(run());
  fs::rename(dir.path("aside"), run());
  EXPECT_TRUE(folder.has_checkpoint());
  save(folder, 9, 1, "d");
  EXPECT_EQ(dir.read("run/best/model.safetensors"), "d");
}

TEST_F(RunFolderTest, AFolderThatComesBackIsTakenAgain) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 0, 2, "a");
  fs::rename(run(), dir.path("aside"));
  fs::create_directory(run());
  save(folder, 5, 3, "b");
  fs::rename(run(), dir.path("other"));
  fs::rename(dir.path("aside"), run());
  save(folder, 9, 1, "c");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000009", "last", "lock"));
  EXPECT_EQ(dir.read("other/last/model.safetensors"), "b");
}

TEST_F(RunFolderTest, ALockThatIsRemovedIsTakenAgain) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 0, 2, "a");
  fs::remove(run() / "lock");
  save(folder, 5, 1, "b");
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000005", "last", "lock"));
  EXPECT_THAT(start_error(true), HasSubstr("is in use by another training run"));
}

TEST_F(RunFolderTest, ALockThatIsALinkIsNotFollowed) {
  fs::create_directory(run());
  fs::create_symlink("../outside", run() / "lock");
  EXPECT_EQ(start_error(),
            "cannot write " + (run() / "lock").string() + ": Too many levels of symbolic links");
  EXPECT_FALSE(fs::exists(dir.path("outside")));
}

// What someone puts there while the run is at work.
TEST_F(RunFolderTest, AFileOfSomeoneElsesIsNotReplaced) {
  RunFolder folder = RunFolder::start(run(), false);
  folder.set_settings(kSettings);
  save(folder, 0, 2, "a");
  folder.set_settings(kSettings);
  for (const char* name : {"settings.json", "trace.json", "metrics.jsonl"}) {
    for (const bool is_link : {false, true}) {
      fs::remove(run() / name);
      const std::string path = dir.write(is_link ? "outside" : std::string("run/") + name, "mine");
      if (is_link) {
        fs::create_symlink("../outside", run() / name);
      }
      const auto write = [&] {
        return name == std::string("settings.json") ? folder.write_settings()
               : name == std::string("trace.json")  ? folder.write_trace("{}")
                                                    : folder.claim(folder.metrics_file());
      };
      EXPECT_EQ(error_text<std::runtime_error>(write),
                (run() / name).string() +
                    " is in the way and no part of a run; move it, or use another --out_dir");
      EXPECT_EQ(read_whole_file(path, 100), "mine");
    }
  }
}

// Checkpoints may be removed for their room.
TEST_F(RunFolderTest, MetricsOfATrainingAreARun) {
  RunFolder::start(run(), false);
  dir.write("run/metrics.jsonl", "{\"kind\":\"eval\"}\n{\"kind\":\"iter\"}\n");
  EXPECT_EQ(start_error(), run().string() +
                               " holds a run already (metrics.jsonl); --overwrite replaces it, "
                               "another --out_dir leaves it");
  RunFolder::start(run(), true);
  EXPECT_THAT(names(), ElementsAre("lock"));
}

TEST_F(RunFolderTest, GoingOnChangesNoFilesOfOthers) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 3, 2, "a");
  for (const char* name :
       {"settings.json", "metrics.jsonl", "trace.json.tmp", "settings.json.tmp"}) {
    const std::string path = dir.write(std::string("run/") + name, "mine");
    EXPECT_EQ(error_text<std::runtime_error>([&] { settle(folder, 2); }),
              path + " is in the way and no part of a run; move it, or use another --out_dir");
    fs::remove(path);
  }
}

TEST_F(RunFolderTest, SaysWhatIsWrongWithTheFolder) {
  const std::string file = dir.write("file", "");
  EXPECT_EQ(error_text<std::runtime_error>([&] { RunFolder::start(file, false); }),
            "cannot make the folder " + file + ": Not a directory");
  EXPECT_THAT(error_text<std::runtime_error>([&] { RunFolder::start(file + "/run", false); }),
              StartsWith("cannot make the folder " + file + "/run: "));
  EXPECT_EQ(error_text<std::runtime_error>([&] { find_checkpoint(run(), "last"); }),
            "cannot open the run folder " + run().string() + ": No such file or directory");
  EXPECT_EQ(error_text<std::runtime_error>([&] { find_checkpoint(file, "last"); }),
            "cannot open the run folder " + file + ": not a folder");
  EXPECT_EQ(error_text<std::runtime_error>([&] { find_checkpoint(dir.path(), ""); }),
            dir.path() + " holds no checkpoint: best or last is not there");
}

TEST_F(RunFolderTest, ACheckpointIsNotTakenForTheRun) {
  RunFolder folder = RunFolder::start(run(), false);
  save(folder, 0, 2, "a");
  const fs::path best = run() / "best";
  const std::string refused = best.string() +
                              " is a checkpoint, not the folder of a run, which "
                              "would be " +
                              fs::canonical(run()).string();
  EXPECT_EQ(error_text<std::runtime_error>([&] { RunFolder::start(best, true); }), refused);
  EXPECT_EQ(error_text<std::runtime_error>([&] { RunFolder::resume(best); }), refused);
  EXPECT_EQ(error_text<std::runtime_error>([&] { find_checkpoint(best, ""); }), refused);
  EXPECT_THAT(names(), ElementsAre("best", "ckpt-000000", "last", "lock"));
}

TEST_F(RunFolderTest, KnowsWhetherItsCheckpointIsStillThere) {
  RunFolder folder = RunFolder::start(run(), false);
  EXPECT_FALSE(folder.has_checkpoint());
  save(folder, 0, 2, "a");
  EXPECT_TRUE(folder.has_checkpoint());
  fs::remove_all(run());
  EXPECT_FALSE(folder.has_checkpoint());
}

TEST(Files, ReplacingWritesThroughNoLinkAndOverNoFile) {
  const TempFolder dir;
  const std::string precious = dir.write("precious", "mine"), path = dir.path("x");
  fs::create_symlink("precious", path + ".tmp");
  EXPECT_EQ(error_text<std::runtime_error>([&] { replace_file(path, "text"); }),
            "cannot write " + path + ".tmp: File exists");
  EXPECT_EQ(dir.read("precious"), "mine");
  EXPECT_EQ(fs::read_symlink(path + ".tmp"), "precious");
  fs::remove(path + ".tmp");
  dir.write("x.tmp", "mine");
  EXPECT_EQ(error_text<std::runtime_error>([&] { replace_link(path, "precious"); }),
            "cannot make the link " + path + ".tmp: File exists");
  EXPECT_EQ(dir.read("x.tmp"), "mine");
}

TEST(Files, ADiskWithoutRoomIsRefused) {
  const TempFolder dir;
  check_room(dir.path(""), 1, "a file needs");
  check_room("/proc", INT64_MAX, "a file needs");  // which does not tell its size
  EXPECT_THAT(
      error_text<std::runtime_error>([&] { check_room(dir.path(""), INT64_MAX, "a file needs"); }),
      testing::MatchesRegex("the disk of .* has room for [0-9]+ bytes, a file "
                            "needs 9223372036854775807"));
}

TEST(Files, ReaderTellsWhereAFileEnds) {
  const TempFolder dir;
  const FileReader reader(dir.write("x", "abcdef"));
  char bytes[4];
  reader.read(2, bytes, 4);
  EXPECT_EQ(std::string(bytes, 4), "cdef");
  EXPECT_EQ(error_text<std::runtime_error>([&] { reader.read(4, bytes, 4); }),
            "cannot read " + dir.path("x") + ": it ends at byte 6");
  EXPECT_EQ(reader.next(bytes, 4), 4U);
  EXPECT_EQ(reader.next(bytes, 4), 2U);
}

}  // namespace
}  // namespace chargrad::train
