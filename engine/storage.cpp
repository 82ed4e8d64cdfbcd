#include "engine/storage.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
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

class Pool {
 public:
  std::byte* take(int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      stats_.in_use += bytes;
      if (auto it = free_.find(bytes); it != free_.end() && !it->second.empty()) {
        std::byte* block = it->second.back();
        it->second.pop_back();
        stats_.kept -= bytes;
        return block;
      }
    }
    std::byte* block = allocate(bytes);
    if (block == nullptr) {
      release();
      block = allocate(bytes);
    }
    if (block == nullptr) {
      const std::lock_guard lock(mutex_);
      stats_.in_use -= bytes;
      throw std::bad_alloc();
    }
    return block;
  }

  void give(std::byte* block, int64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    stats_.in_use -= bytes;
    try {
      free_[bytes].push_back(block);
      stats_.kept += bytes;
    } catch (const std::bad_alloc&) {
      std::free(block);
    }
  }

  void release() {
    const std::lock_guard lock(mutex_);
    for (auto& [bytes, blocks] : free_) {
      for (std::byte* block : blocks) {
        std::free(block);
      }
    }
    free_.clear();
    stats_.kept = 0;
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static std::byte* allocate(int64_t bytes) {
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

  std::mutex mutex_;
  std::unordered_map<int64_t, std::vector<std::byte*>> free_;
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
