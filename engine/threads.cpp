// The pool behind parallel_for. A job's chunks are laid out over the threads in equal stretches, so
// that each thread meets the same part of a tensor in one job after the other and finds it in its
// own cache; who is done takes from the ends of the others' stretches. Chunks are claimed by
// compare-and-swap, so a worker that wakes late finds nothing to do and nobody waits for it: the
// caller alone can finish any job.
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
// Pieces that a stretch's word can count; of more chunks, several make a piece.
constexpr int64_t kMaxPieces = 0xffff;

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
  explicit Pool(int threads)
      : threads_(threads), processors_(processors()), stretches_(static_cast<size_t>(threads)) {
    workers_.reserve(static_cast<size_t>(threads - 1));
    try {
      while (static_cast<int>(workers_.size()) < threads - 1) {
        workers_.emplace_back([this, self = workers_.size() + 1] { work(self); });
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

  // Requires: one caller at a time, 0 < chunks.
  void run(int64_t chunks, void (*call)(void*, int64_t), void* context) {
    const int64_t size = (chunks + kMaxPieces - 1) / kMaxPieces;
    const int64_t pieces = (chunks + size - 1) / size;
    // Nothing is left of the job before, so no claim can succeed while these change.
    loop_.call.store(call, std::memory_order_relaxed);
    loop_.context.store(context, std::memory_order_relaxed);
    loop_.chunks.store(chunks, std::memory_order_relaxed);
    loop_.piece.store(size, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    error_ = nullptr;
    error_chunk_ = chunks;
    const uint32_t job = job_.load(std::memory_order_relaxed) + 1;
    const int64_t used = std::min<int64_t>(threads_, pieces);
    for (int64_t i = 0; i < used; ++i) {
      stretches_[static_cast<size_t>(i)].word.store(
          Claim{job, pieces * i / used, pieces * (i + 1) / used}.word(), std::memory_order_release);
    }
    job_.store(job);  // seq_cst: see sleep().
    wake_workers(pieces - 1);

    claim_pieces(0);
    wait_until_finished(chunks);
    if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 private:
  // What is left of a stretch: pieces [begin, end) of a job.
  struct Claim {
    uint32_t job;
    int64_t begin;
    int64_t end;

    uint64_t word() const {
      return (uint64_t{job} << 32) | (static_cast<uint64_t>(begin) << 16) |
             static_cast<uint64_t>(end);
    }
    static Claim of(uint64_t word) {
      return {static_cast<uint32_t>(word >> 32), static_cast<int64_t>((word >> 16) & 0xffff),
              static_cast<int64_t>(word & 0xffff)};
    }
  };
  struct alignas(64) Stretch {
    std::atomic<uint64_t> word{0};
  };
  struct alignas(64) Loop {
    std::atomic<void (*)(void*, int64_t)> call{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<int64_t> chunks{0};
    std::atomic<int64_t> piece{1};  // chunks of one piece
  };

  // Runs what is left of the current job: thread `self`'s own stretch from the front, then the
  // others' from the back.
  void claim_pieces(size_t self) {
    int64_t done = 0, chunks = 0;
    for (size_t i = 0; i < stretches_.size(); ++i) {
      std::atomic<uint64_t>& word = stretches_[(self + i) % stretches_.size()].word;
      uint64_t before = word.load(std::memory_order_acquire);
      for (Claim left = Claim::of(before); left.begin < left.end; left = Claim::of(before)) {
        // May already belong to a later job than `before`; then the exchange fails.
        const auto call = loop_.call.load(std::memory_order_relaxed);
        void* const context = loop_.context.load(std::memory_order_relaxed);
        const int64_t all = loop_.chunks.load(std::memory_order_relaxed);
        const int64_t size = loop_.piece.load(std::memory_order_relaxed);
        const int64_t piece = i == 0 ? left.begin++ : --left.end;
        if (!word.compare_exchange_weak(before, left.word(), std::memory_order_acquire)) {
          continue;
        }
        chunks = all;
        for (int64_t chunk = piece * size; chunk < std::min(all, (piece + 1) * size); ++chunk) {
          run_one(call, context, chunk);
          ++done;
        }
        before = word.load(std::memory_order_acquire);
      }
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

  void work(size_t self) {
    inside_chunk = true;
    uint32_t seen = 0;  // The last job of which nothing was left when this thread looked.
    while (!stop_.load(std::memory_order_relaxed)) {
      if (!spin(seen)) {
        sleep(seen);
      }
      const uint32_t job = job_.load(std::memory_order_acquire);
      claim_pieces(self);
      seen = job;
    }
  }

  // Waits actively, but never on more threads than there are processors. True: there is a job.
  bool spin(uint32_t seen) {
    const bool may_spin = spinning_.fetch_add(1) < processors_ - 1;
    bool found = job_.load(std::memory_order_relaxed) != seen;
    for (int turn = 0; may_spin && !found && turn < kSpinTurns; ++turn) {
      pause_cpu();
      found = job_.load(std::memory_order_relaxed) != seen;
    }
    spinning_.fetch_sub(1);
    return found;
  }

  // Either the caller sees this sleeper, or this thread sees the caller's job: both write their
  // own word before they read the other's, all in one total order.
  void sleep(uint32_t seen) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return job_.load() != seen || stop_.load(); });
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
  int avoided_ = -1;                // The processor that the workers were kept off last.
  std::vector<Stretch> stretches_;  // One a thread, the caller's first.
  alignas(64) std::atomic<uint32_t> job_{0};
  Loop loop_;
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
  if (chunks <= 1 || threads == 1 || inside_chunk) {
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
