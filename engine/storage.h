// Memory behind tensors. Knows bytes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace chargrad {

// A 64-byte aligned block of bytes, shared by every tensor that views it, with the counter that
// in-place changes raise. Contents start undefined. Freed blocks are kept and handed out again,
// so that a loop which repeats its allocations asks the system for none; blocks of 2 MiB and more
// ask for huge pages, and are also handed out in parts. Making and freeing is thread-safe, use is
// not.
class Storage {
 public:
  // Throws std::bad_alloc when the system has no memory, after giving back what is kept.
  explicit Storage(int64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // How often the contents were changed in place.
  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t version_ = 0;
};

// Bytes in use by storages, and bytes that are kept for reuse.
struct MemoryStats {
  int64_t in_use = 0;
  int64_t kept = 0;
};
MemoryStats memory_stats();

// Gives kept blocks back to the system.
void release_kept_memory();

}  // namespace chargrad
