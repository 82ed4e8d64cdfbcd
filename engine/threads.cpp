// The pool behind parallel_for. A job is published by one store and its chunks are claimed by
// compare-and-swap on the same word, so a worker that wakes late finds nothing to do and nobody
// waits for it: the caller alone can finish any job.
#include "engine/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/check.h"

namespace chargrad {

namespace {

constexpr int kMaxThreads = 1024;
// Turns before a waiting thread goes to sleep. A turn is 10-40 ns, a wake-up by the kernel costs
// 5-50 us: long enough for the gap between two kernels of one model, short on a busy machine.
constexpr int kSpinTurns = 4000;
// Chunks that the count in the job's word can hold; a longer loop runs serially.
constexpr int64_t kMaxChunks = 0xffffffff;

// True on the workers, and on a caller while its parallel_for runs.
thread_local bool inside_chunk = false;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int processors() {
  static const int count = [] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
      return std::clamp(CPU_COUNT(&mask), 1, kMaxThreads);
    }
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  }();
  return count;
}

class Pool {
 public:
  // Starts threads - 1 workers; fewer where the system refuses: results do not depend on it.
  explicit Pool(int threads) : threads_(threads), processors_(processors()) {
    workers_.reserve(static_cast<size_t>(threads - 1));
    try {
      while (static_cast<int>(workers_.size()) < threads - 1) {
        workers_.emplace_back([this] { work(); });
      }
    } catch (const std::system_error&) {
    }
    keep_workers_off_the_callers_processor();
  }

  // Requires: no job is running.
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) {
      worker.join();
    }
  }

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Requires: one caller at a time, 0 < chunks <= kMaxChunks.
  void run(int64_t chunks, void (*call)(void*, int64_t), void* context) {
    // Nothing is left of the job before, so no claim can succeed while these change.
    call_.store(call, std::memory_order_relaxed);
    context_.store(context, std::memory_order_relaxed);
    chunks_.store(chunks, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    error_ = nullptr;
    error_chunk_ = chunks;
    const uint64_t job = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    state_.store((job << 32) | static_cast<uint64_t>(chunks));  // seq_cst: see sleep().
    wake_workers(chunks - 1);

    claim_chunks();
    wait_until_finished(chunks);
    if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 private:
  static uint64_t left(uint64_t state) { return state & 0xffffffffu; }

  // Runs chunks of the current job until none is left to claim.
  void claim_chunks() {
    int64_t done = 0, chunks = 0;
    uint64_t state = state_.load(std::memory_order_acquire);
    while (left(state) > 0) {
      // May already belong to a later job than `state`; then the exchange fails.
      const auto call = call_.load(std::memory_order_relaxed);
      void* const context = context_.load(std::memory_order_relaxed);
      chunks = chunks_.load(std::memory_order_relaxed);
      if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acquire)) {
        continue;
      }
      run_one(call, context, chunks - static_cast<int64_t>(left(state)));
      ++done;
      state = state_.load(std::memory_order_acquire);
    }
    if (done > 0) {
      report(done, chunks);
    }
  }

  void run_one(void (*call)(void*, int64_t), void* context, int64_t chunk) {
    try {
      call(context, chunk);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (chunk < error_chunk_) {  // The lowest chunk's, whoever came first.
        error_ = std::current_exception();
        error_chunk_ = chunk;
      }
    }
  }

  // Adds to the count that the caller waits for. The job cannot end before this, so `chunks` is
  // still its own.
  void report(int64_t done, int64_t chunks) {
    if (finished_.fetch_add(done) + done == chunks && caller_sleeps_.load()) {
      { const std::lock_guard lock(mutex_); }
      all_done_.notify_one();
    }
  }

  void wait_until_finished(int64_t chunks) {
    for (int turn = 0; turn < kSpinTurns && processors_ > 1; ++turn) {
      if (finished_.load(std::memory_order_acquire) == chunks) {
        return;
      }
      pause_cpu();
    }
    std::unique_lock lock(mutex_);
    caller_sleeps_.store(true);
    all_done_.wait(lock, [&] { return finished_.load() == chunks; });
    caller_sleeps_.store(false);
  }

  void work() {
    inside_chunk = true;
    while (!stop_.load(std::memory_order_relaxed)) {
      if (!spin()) {
        sleep();
      }
      claim_chunks();
    }
  }

  // Waits actively, but never on more threads than there are processors. True: there is work.
  bool spin() {
    const bool may_spin = spinning_.fetch_add(1) < processors_ - 1;
    bool found = left(state_.load(std::memory_order_relaxed)) > 0;
    for (int turn = 0; may_spin && !found && turn < kSpinTurns; ++turn) {
      pause_cpu();
      found = left(state_.load(std::memory_order_relaxed)) > 0;
    }
    spinning_.fetch_sub(1);
    return found;
  }

  // Either the caller sees this sleeper, or this thread sees the caller's job: both write their
  // own word before they read the other's, all in one total order.
  void sleep() {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return left(state_.load()) > 0 || stop_.load(); });
    sleepers_.fetch_sub(1);
  }

  // Workers that spin come by themselves: one that stops looks once more before it sleeps.
  void wake_workers(int64_t wanted) {
    const int64_t sleepers = sleepers_.load();
    wanted = std::min(wanted - spinning_.load(), sleepers);
    if (wanted <= 0) {
      return;
    }
    keep_workers_off_the_callers_processor();
    { const std::lock_guard lock(mutex_); }
    for (int64_t i = 0; i < wanted; ++i) {
      wake_.notify_one();
    }
  }

  // Linux often wakes a thread on the processor of the one that woke it, and may leave both there
  // for many milliseconds while another idles: each then waits for the other. So where there is a
  // processor for every thread, workers may run where the caller may, but for where it is now.
  void keep_workers_off_the_callers_processor() {
    const int processor = sched_getcpu();
    if (processor < 0 || processor >= CPU_SETSIZE || processor == avoided_) {
      return;
    }
    avoided_ = processor;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0 || CPU_COUNT(&mask) < threads_) {
      return;
    }
    CPU_CLR(processor, &mask);
    for (std::thread& worker : workers_) {
      pthread_setaffinity_np(worker.native_handle(), sizeof(mask), &mask);
    }
  }

  const int threads_;
  const int processors_;
  int avoided_ = -1;  // The processor that the workers were kept off last.
  // Job number in the upper half, chunks that nobody has claimed in the lower.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<void (*)(void*, int64_t)> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> chunks_{0};
  alignas(64) std::atomic<int64_t> finished_{0};
  std::atomic<bool> caller_sleeps_{false};

  alignas(64) std::atomic<int> spinning_{0};
  std::atomic<int64_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable all_done_;
  std::exception_ptr error_;  // Under mutex_ while a job runs.
  int64_t error_chunk_ = 0;

  std::vector<std::thread> workers_;
};

std::atomic<int> wanted_threads{0};  // 0: processors()
// Held by the one caller that has the workers; guards `pool`.
std::atomic<bool> pool_taken{false};
// Never destroyed at exit: its threads end with the process, and static destructors may still
// call parallel_for.
Pool* pool = nullptr;

// Requires: pool_taken is held by this thread.
Pool& pool_of(int threads) {
  if (pool == nullptr || pool->threads() != threads) {
    static const int at_fork = pthread_atfork(nullptr, nullptr, [] {
      pool = nullptr;  // A child has none of the workers.
      pool_taken.store(false);
      inside_chunk = false;
    });
    static_cast<void>(at_fork);
    delete std::exchange(pool, nullptr);
    pool = new Pool(threads);
  }
  return *pool;
}

// While alive, loops inside this one run serially, and the workers are this thread's if `taken`.
struct Turn {
  Turn() : taken(!pool_taken.exchange(true, std::memory_order_acquire)) { inside_chunk = true; }
  ~Turn() {
    inside_chunk = false;
    if (taken) {
      pool_taken.store(false, std::memory_order_release);
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  const bool taken;
};

void run_serially(int64_t chunks, void (*call)(void*, int64_t), void* context) {
  for (int64_t i = 0; i < chunks; ++i) {
    call(context, i);
  }
}

}  // namespace

int num_threads() {
  const int wanted = wanted_threads.load(std::memory_order_relaxed);
  return wanted > 0 ? wanted : processors();
}

void set_num_threads(int count) {
  CHARGRAD_CHECK(count >= 0 && count <= kMaxThreads, "set_num_threads: the count must be in [0, ",
                 kMaxThreads, "], got ", count);
  wanted_threads.store(count, std::memory_order_relaxed);
}

namespace detail {

void run_chunks(int64_t chunks, void (*call)(void*, int64_t), void* context) {
  const int threads = num_threads();
  if (chunks <= 1 || threads == 1 || inside_chunk || chunks > kMaxChunks) {
    run_serially(chunks, call, context);
    return;
  }
  const Turn turn;
  if (turn.taken) {
    pool_of(threads).run(chunks, call, context);
  } else {  // Another thread's loop has the workers.
    run_serially(chunks, call, context);
  }
}

}  // namespace detail

}  // namespace chargrad
