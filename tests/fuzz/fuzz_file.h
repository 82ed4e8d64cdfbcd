// What the fuzz targets share: a file in memory for the bytes, and which errors are expected.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace chargrad::fuzz {

// A file in memory that has a path, given other bytes for each input.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", 0)) {}
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void set(std::string_view bytes) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }

 private:
  int descriptor_;
};

inline std::string_view bytes_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// Runs f. Errors of these two types are what a bad input is to get, with one line of text; any
// other, and every lack of memory, ends the fuzzing as a finding.
template <class F>
void expect_value_or_error(const F& f) {
  constexpr size_t kLongest = 2000;
  std::string message = "-";
  try {
    f();
  } catch (const std::runtime_error& error) {
    message = error.what();
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  require(!message.empty() && message.size() < kLongest);
  require(message.find('\n') == std::string::npos);
  require(message.rfind("tensor: out of memory", 0) != 0);  // elsewhere it may be the input's words
}

}  // namespace chargrad::fuzz
