#include "engine/storage.h"

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "engine/profile.h"

namespace chargrad {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 62;  // no system has as many; sums of two overflow

// Sizes are rounded up to an eighth of their power of two, so that nearly equal requests share
// blocks and at most 12.5 % is wasted.
int64_t rounded(int64_t bytes) {
  if (bytes <= kAlignment) {
    return kAlignment;
  }
  if (bytes > kMostBytes) {
    throw std::bad_alloc();
  }
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  const int64_t step = power / 8 > kAlignment ? power / 8 : kAlignment;
  return (bytes + step - 1) / step * step;
}

// Free blocks by their size: one is handed out for its own size only.
class SmallBlocks {
 public:
  // Null if there is none.
  std::byte* take(int64_t bytes) {
    const auto found = free_.find(bytes);
    if (found == free_.end() || found->second.empty()) {
      return nullptr;
    }
    std::byte* const block = found->second.back();
    found->second.pop_back();
    return block;
  }

  void give(std::byte* block, int64_t bytes) { free_[bytes].push_back(block); }

  // Gets a block from the system. Returns its bytes, 0 if there is no memory.
  int64_t grow(int64_t bytes) {
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, static_cast<size_t>(bytes)) != 0) {
      return 0;
    }
    give(static_cast<std::byte*>(block), bytes);
    return bytes;
  }

  // Returns how many bytes went back to the system.
  int64_t release() {
    int64_t released = 0;
    for (auto& [bytes, blocks] : free_) {
      released += bytes * static_cast<int64_t>(blocks.size());
      for (std::byte* block : blocks) {
        std::free(block);
      }
    }
    free_.clear();
    return released;
  }

 private:
  std::unordered_map<int64_t, std::vector<std::byte*>> free_;
};

// Free parts of one stretch of addresses, which grows downward. A part is cut to what is asked for,
// and joined again with its free neighbours when it comes back, so that steps of training, which
// repeat their sizes, hold little more than they use at most (tests/bench/RESULTS.md, 2026-11-30).
class LargeBlocks {
 public:
  // Cuts the smallest part that is large enough, the highest of these; null if none is.
  std::byte* take(int64_t bytes) {
    auto best = free_.end();
    for (auto part = free_.begin(); part != free_.end(); ++part) {
      if (part->second >= bytes && (best == free_.end() || part->second <= best->second)) {
        best = part;
      }
    }
    if (best == free_.end()) {
      return nullptr;
    }
    best->second -= bytes;
    std::byte* const block = best->first + best->second;
    if (best->second == 0) {
      free_.erase(best);
    }
    return block;
  }

  void give(std::byte* block, int64_t bytes) {
    const auto part = free_.emplace(block, bytes).first;
    join_with_next(part);
    if (part != free_.begin()) {
      join_with_next(std::prev(part));
    }
  }

  // Gets from the system what the lowest part lacks, or all, where other mappings are in the way or
  // that part is in use. Returns the bytes, 0 if there is no memory. Requires: no part is large
  // enough.
  int64_t grow(int64_t bytes) {
    const bool lowest_is_free = !free_.empty() && free_.begin()->first == lowest_;
    int64_t more = whole_pages(bytes - (lowest_is_free ? free_.begin()->second : 0));
    std::byte* start = lowest_ == nullptr ? nullptr : map_at(lowest_ - more, more);
    if (start == nullptr) {
      more = whole_pages(bytes);
      start = map_with_room_below(more);
    }
    if (start == nullptr) {
      return 0;
    }
#ifdef MADV_HUGEPAGE
    madvise(start, static_cast<size_t>(more), MADV_HUGEPAGE);
#endif
    lowest_ = start;
    give(start, more);
    return more;
  }

  // Returns how many bytes went back to the system.
  int64_t release() {
    int64_t released = 0;
    for (const auto& [start, bytes] : free_) {
      munmap(start, static_cast<size_t>(bytes));
      lowest_ += start == lowest_ ? bytes : 0;
      released += bytes;
    }
    free_.clear();
    return released;
  }

 private:
  static int64_t whole_pages(int64_t bytes) {
    return (bytes + kHugePage - 1) / kHugePage * kHugePage;
  }

  // New memory, at `address` where that is possible; null if there is none.
  static std::byte* map(std::byte* address, int64_t bytes) {
    void* const start = mmap(address, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
  }

  // Null where something else is there.
  static std::byte* map_at(std::byte* address, int64_t bytes) {
    std::byte* const start = map(address, bytes);
    if (start != nullptr && start != address) {
      munmap(start, static_cast<size_t>(bytes));
      return nullptr;
    }
    return start;
  }

  // At the start of a huge page, 64 GiB below where the system puts others if that is free: they
  // grow downward too.
  static std::byte* map_with_room_below(int64_t bytes) {
    constexpr int64_t kRoom = int64_t{64} << 30;
    const int64_t wide = bytes + kHugePage;
    std::byte* start = map(nullptr, wide);
    if (start == nullptr) {
      return nullptr;
    }
    munmap(start, static_cast<size_t>(wide));
    start = map(start - kRoom, wide);
    if (start == nullptr) {
      return nullptr;
    }
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % kHugePage);
    const int64_t before = past == 0 ? 0 : kHugePage - past, after = kHugePage - before;
    if (before > 0) {
      munmap(start, static_cast<size_t>(before));
    }
    if (after > 0) {
      munmap(start + before + bytes, static_cast<size_t>(after));
    }
    return start + before;
  }

  void join_with_next(std::map<std::byte*, int64_t>::iterator part) {
    const auto next = std::next(part);
    if (next != free_.end() && next->first == part->first + part->second) {
      part->second += next->second;
      free_.erase(next);
    }
  }

  std::map<std::byte*, int64_t> free_;  // bytes by start
  std::byte* lowest_ = nullptr;         // of the stretch
};

class Pool {
 public:
  std::byte* take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::byte* block = find(bytes);
    if (block == nullptr) {
      if (!grow(bytes)) {
        give_back();
        if (!grow(bytes)) {
          throw std::bad_alloc();
        }
      }
      block = find(bytes);
    }
    stats_.kept -= bytes;
    stats_.in_use += bytes;
    return block;
  }

  void give(std::byte* block, int64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    stats_.in_use -= bytes;
    try {
      if (is_small(bytes)) {
        small_.give(block, bytes);
      } else {
        large_.give(block, bytes);
      }
      stats_.kept += bytes;
    } catch (const std::bad_alloc&) {
      // No memory to note that the block is free: it stays unused.
    }
  }

  void release() {
    const std::lock_guard lock(mutex_);
    give_back();
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static bool is_small(int64_t bytes) { return bytes < kHugePage; }

  std::byte* find(int64_t bytes) {
    return is_small(bytes) ? small_.take(bytes) : large_.take(bytes);
  }

  bool grow(int64_t bytes) {
    const int64_t more = is_small(bytes) ? small_.grow(bytes) : large_.grow(bytes);
    stats_.kept += more;
    return more > 0;
  }

  void give_back() { stats_.kept -= small_.release() + large_.release(); }

  std::mutex mutex_;
  SmallBlocks small_;
  LargeBlocks large_;
  MemoryStats stats_;
};

// Never destroyed: tensors of static storage duration may outlive any other order.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

}  // namespace

Storage::Storage(int64_t bytes) : data_(pool().take(rounded(bytes))), bytes_(bytes) {
  if (profile::current != nullptr) {
    profile::current->allocated(bytes);
  }
}

Storage::~Storage() {
  pool().give(data_, rounded(bytes_));
}

MemoryStats memory_stats() {
  return pool().stats();
}

void release_kept_memory() {
  pool().release();
}

}  // namespace chargrad
