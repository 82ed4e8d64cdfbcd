#include "engine/storage.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
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

std::byte* allocate(int64_t bytes) {
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* block = nullptr;
  if (posix_memalign(&block, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) {
    return nullptr;
  }
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) {
    madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  }
#endif
  return static_cast<std::byte*>(block);
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

// Free parts of segments, which are what the system gave. A part is cut to what is asked for, and
// joined again with its free neighbours when it comes back, so that steps of training, which repeat
// their sizes, hold little more than they use at most (tests/bench/RESULTS.md, 2026-11-30, "memory
// cut to size"). Segments are kept until the system has no more memory.
class LargeBlocks {
 public:
  // Cuts the smallest part that is large enough, the oldest of these; null if none is.
  std::byte* take(int64_t bytes) {
    auto best = free_.end();
    for (auto part = free_.begin(); part != free_.end(); ++part) {
      if (part->second >= bytes && (best == free_.end() || part->second < best->second)) {
        best = part;
      }
    }
    if (best == free_.end()) {
      return nullptr;
    }
    const auto [segment, block] = best->first;
    if (best->second > bytes) {
      free_.emplace(Place(segment, block + bytes), best->second - bytes);
    }
    free_.erase(best);
    return block;
  }

  // A segment that the system gave, all of it in use.
  void add(std::byte* start, int64_t bytes) { segments_[start] = {next_segment_++, bytes}; }

  void give(std::byte* block, int64_t bytes) {
    const int64_t segment = std::prev(segments_.upper_bound(block))->second.number;
    auto part = free_.emplace(Place(segment, block), bytes).first;
    join_with_next(part);
    if (part != free_.begin()) {
      join_with_next(std::prev(part));
    }
  }

  // Returns how many bytes went back to the system: segments that are free as a whole.
  int64_t release() {
    int64_t released = 0;
    for (auto it = segments_.begin(); it != segments_.end();) {
      const auto [start, segment] = *it;
      const auto part = free_.find(Place(segment.number, start));
      if (part == free_.end() || part->second != segment.bytes) {
        ++it;
        continue;
      }
      free_.erase(part);
      it = segments_.erase(it);
      std::free(start);
      released += segment.bytes;
    }
    return released;
  }

 private:
  struct Segment {
    int64_t number = 0;  // older ones have smaller numbers
    int64_t bytes = 0;
  };
  using Place = std::pair<int64_t, std::byte*>;  // a segment's number and a start within it

  void join_with_next(std::map<Place, int64_t>::iterator part) {
    const auto next = std::next(part);
    const auto [segment, block] = part->first;
    if (next != free_.end() && next->first == Place(segment, block + part->second)) {
      part->second += next->second;
      free_.erase(next);
    }
  }

  std::map<Place, int64_t> free_;  // bytes
  std::map<std::byte*, Segment> segments_;
  int64_t next_segment_ = 0;
};

class Pool {
 public:
  std::byte* take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::byte* block = bytes < kHugePage ? small_.take(bytes) : large_.take(bytes);
    if (block != nullptr) {
      stats_.kept -= bytes;
    } else {
      block = allocate_or_throw(bytes);
    }
    stats_.in_use += bytes;
    return block;
  }

  void give(std::byte* block, int64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    stats_.in_use -= bytes;
    try {
      if (bytes < kHugePage) {
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
    stats_.kept -= small_.release() + large_.release();
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  std::byte* allocate_or_throw(int64_t bytes) {
    std::byte* block = allocate(bytes);
    if (block == nullptr) {
      stats_.kept -= small_.release() + large_.release();
      block = allocate(bytes);
    }
    if (block == nullptr) {
      throw std::bad_alloc();
    }
    if (bytes >= kHugePage) {
      large_.add(block, bytes);
    }
    return block;
  }

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
