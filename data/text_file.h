// Reads a UTF-8 text file in blocks, as code points, without ever holding it whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace chargrad::data {

// Gets the raw bytes of a file in order, cut anywhere.
using ByteSink = std::function<void(std::string_view)>;
// Gets the characters of a text in order, at least one at a time.
using CharacterSink = std::function<void(std::span<const char32_t>)>;

// An open regular file. The text is taken as it stands: CR, LF and NUL are characters like any
// other, so that encoding and decoding give back every byte; only a byte-order mark at the very
// start is dropped. All errors are std::runtime_error and name the path.
class TextFile {
 public:
  // Large enough that a system call is cheap, small enough that a block of code points (four
  // times as large) stays in the second-level cache.
  static constexpr int64_t kBlockBytes = 131'072;

  // Throws if the file cannot be opened or is not a regular file (a directory, pipe or device).
  // Requires: block_bytes >= 1.
  explicit TextFile(const std::string& path, int64_t block_bytes = kBlockBytes);

  // Reads the file from start to end. `on_characters` gets the text, `on_bytes` (may be empty)
  // every byte of the file, a byte-order mark too. Returns the length of the file in bytes. Throws
  // on an error of the system, on invalid UTF-8 (with the offset of its first byte), and if the
  // length or the time of modification of the file is no longer what it was at opening: a second
  // read gives the text of the first.
  int64_t read(const CharacterSink& on_characters, const ByteSink& on_bytes = {});

  // The path as it goes into a message: control characters are replaced.
  const std::string& name() const { return name_; }

  // Throws that the file changed while it was being read.
  [[noreturn]] void fail_changed() const;

 private:
  struct Version {
    int64_t bytes;
    std::filesystem::file_time_type written;
    bool operator==(const Version&) const = default;
  };
  Version version() const;
  int64_t read_block(char* out);

  std::filesystem::path path_;
  std::string name_;
  int64_t block_bytes_;
  Version opened_ = {};
  std::ifstream stream_;
};

// The whole text of a file, as TextFile reads it; may be empty.
std::string read_text(const std::string& path);

}  // namespace chargrad::data
