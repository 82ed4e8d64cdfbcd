#include "engine/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace chargrad {
namespace {

using testing::Each;
using testing::ThrowsMessage;

class Threads : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(0); }
};

TEST_F(Threads, StartsAtTheProcessorsOfThisProcess) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(num_threads(), CPU_COUNT(&mask));
  set_num_threads(5);
  EXPECT_EQ(num_threads(), 5);
  set_num_threads(0);
  EXPECT_EQ(num_threads(), CPU_COUNT(&mask));
}

TEST_F(Threads, RefusesCountsOutsideTheRange) {
  EXPECT_THAT([] { set_num_threads(-1); },
              ThrowsMessage<std::invalid_argument>(
                  "set_num_threads: the count must be in [0, 1024], got -1"));
  EXPECT_THAT([] { set_num_threads(1025); },
              ThrowsMessage<std::invalid_argument>(
                  "set_num_threads: the count must be in [0, 1024], got 1025"));
  set_num_threads(1024);
  EXPECT_EQ(num_threads(), 1024);
}

TEST_F(Threads, EachChunkRunsOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    for (const int64_t chunks : {0, 1, 2, 3, 6, 7, 8, 1000}) {
      std::vector<int> runs(static_cast<size_t>(chunks), 0);
      parallel_for(chunks, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      EXPECT_THAT(runs, Each(1)) << threads << " threads, " << chunks << " chunks";
    }
  }
}

// More chunks than a thread's stretch counts one by one.
TEST_F(Threads, EachOfVeryManyChunksRunsOnce) {
  for (const int threads : {2, 7}) {
    set_num_threads(threads);
    std::vector<unsigned char> runs(3 * 65535 + 2, 0);
    parallel_for(static_cast<int64_t>(runs.size()),
                 [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), std::ssize(runs)) << threads << " threads";
  }
}

// One chunk waits for all others, so other threads must take the rest of its thread's stretch.
TEST_F(Threads, WhoIsDoneTakesFromTheOthers) {
  for (const int threads : {2, 3}) {
    set_num_threads(threads);
    for (const int64_t waiting : {0, 5, 19}) {
      std::atomic<int> others{0};
      parallel_for(20, [&](int64_t i) {
        if (i != waiting) {
          ++others;
          return;
        }
        while (others.load() < 19) {
          std::this_thread::yield();
        }
      });
      EXPECT_EQ(others.load(), 19);
    }
  }
}

// Each job writes plain memory that the next one reads: a lost or late chunk, or a missing
// happens-before between jobs, shows here (and under ThreadSanitizer).
TEST_F(Threads, ManyShortJobsInARow) {
  for (const int threads : {2, 7}) {
    set_num_threads(threads);
    std::vector<int64_t> values(5, 0);
    for (int64_t job = 0; job < 20000; ++job) {
      parallel_for(static_cast<int64_t>(values.size()), [&](int64_t i) {
        values[static_cast<size_t>(i)] += values[static_cast<size_t>(i)] == job ? 1 : 1000000;
      });
    }
    EXPECT_THAT(values, Each(20000)) << threads << " threads";
  }
}

// Jobs far apart: the workers are asleep each time.
TEST_F(Threads, SleepingWorkersWake) {
  set_num_threads(2);
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> arrived{0};
    // Neither chunk ends before both have begun, so two threads must take part.
    parallel_for(2, [&](int64_t) {
      ++arrived;
      while (arrived.load() < 2) {
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

// On how many processors a worker of a pool of `threads` may run.
int processors_of_a_worker(int threads) {
  set_num_threads(threads);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> count{0};
  while (count == 0) {  // Until a worker gets a chunk.
    parallel_for(2, [&](int64_t) {
      cpu_set_t mask;
      if (std::this_thread::get_id() == caller) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
        count = CPU_COUNT(&mask);
      }
    });
  }
  return count;
}

// Both on one processor they would take turns, and two threads be as slow as one.
TEST_F(Threads, WorkersStayOffTheCallersProcessorWhereThereIsOneForEach) {
  const int processors = num_threads();
  if (processors < 2) {
    GTEST_SKIP() << "one processor";
  }
  EXPECT_EQ(processors_of_a_worker(processors), processors - 1);
  EXPECT_EQ(processors_of_a_worker(processors + 1), processors);
}

TEST_F(Threads, NestedCallsRunSeriallyOnTheSameThread) {
  set_num_threads(3);
  std::atomic<int64_t> wrong{0}, inner{0};
  parallel_for(8, [&](int64_t) {
    const auto self = std::this_thread::get_id();
    int64_t expected = 0;
    parallel_for(10, [&](int64_t i) {
      wrong += std::this_thread::get_id() != self || i != expected++;
      ++inner;
    });
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(inner.load(), 80);
}

TEST_F(Threads, TheLowestChunksExceptionIsRethrownAfterTheOthersEnded) {
  for (const int threads : {1, 2, 7}) {
    set_num_threads(threads);
    std::atomic<int> running{0};
    const auto loop = [&] {
      parallel_for(20, [&](int64_t i) {
        ++running;
        std::this_thread::yield();
        --running;
        if (i >= 3 && i % 2 == 1) {
          throw std::runtime_error("chunk " + std::to_string(i));
        }
      });
    };
    EXPECT_THAT(loop, ThrowsMessage<std::runtime_error>("chunk 3")) << threads << " threads";
    EXPECT_EQ(running.load(), 0);
    std::atomic<int> runs{0};
    parallel_for(20, [&](int64_t) { ++runs; });  // The pool works on.
    EXPECT_EQ(runs.load(), 20);
  }
}

// Two callers at once: one gets the workers, the other runs alone; neither waits or mixes.
TEST_F(Threads, CallersOnDifferentThreads) {
  set_num_threads(3);
  std::vector<int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&sums, c] {
      for (int job = 0; job < 200; ++job) {
        std::vector<int64_t> parts(9, 0);
        parallel_for(9, [&](int64_t i) { parts[static_cast<size_t>(i)] = i; });
        sums[c] += std::accumulate(parts.begin(), parts.end(), int64_t{0});
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_THAT(sums, Each(200 * 36));
}

TEST_F(Threads, ChangingTheCountBetweenJobs) {
  for (int round = 0; round < 30; ++round) {
    set_num_threads(1 + round % 4);
    std::atomic<int> runs{0};
    parallel_for(16, [&](int64_t) { ++runs; });
    EXPECT_EQ(runs.load(), 16);
  }
}

// A static object's destructor may still loop, and the process ends with its own exit code.
struct LoopsAtExit {
  ~LoopsAtExit() {
    std::atomic<int> runs{0};
    parallel_for(8, [&](int64_t) { ++runs; });
    std::_Exit(runs.load() == 8 ? 3 : 4);
  }
};

TEST(ThreadsDeathTest, UsableUntilTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static const LoopsAtExit last;
        set_num_threads(3);
        parallel_for(8, [](int64_t) {});
        std::exit(0);
      },
      testing::ExitedWithCode(3), "");
}

// A forked child has no workers; its loops must neither hang nor lose a chunk.
TEST(ThreadsDeathTest, UsableAfterFork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of several threads";
#endif
  GTEST_FLAG_SET(death_test_style, "fast");
  set_num_threads(3);
  parallel_for(8, [](int64_t) {});
  EXPECT_EXIT(
      {
        std::atomic<int> runs{0};
        for (int job = 0; job < 100; ++job) {
          parallel_for(8, [&](int64_t) { ++runs; });
        }
        std::_Exit(runs.load() == 800 ? 5 : 6);
      },
      testing::ExitedWithCode(5), "");
  set_num_threads(0);
}

}  // namespace
}  // namespace chargrad
