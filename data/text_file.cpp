#include "data/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "data/code_points.h"

namespace chargrad::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLongestName = 4096;

[[noreturn]] void fail(const std::string& what, const std::string& name, const std::string& why) {
  throw std::runtime_error("cannot " + what + " " + name + ": " + why);
}

}  // namespace

TextFile::TextFile(const std::string& path, int64_t block_bytes)
    : path_(path), name_(printable(path, kLongestName)), block_bytes_(block_bytes) {
  // Before opening: that would wait for ever at a pipe to which nobody writes.
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (error) {
    fail("open", name_, error.message());
  }
  if (fs::is_directory(status)) {
    fail("read", name_, std::make_error_code(std::errc::is_a_directory).message());
  }
  if (!fs::is_regular_file(status)) {
    fail("read", name_, "Not a regular file");
  }
  opened_ = version();
  errno = 0;
  stream_.open(path_, std::ios::binary);
  if (!stream_) {
    fail("open", name_, std::generic_category().message(errno));
  }
  stream_.exceptions(std::ios::badbit);
}

int64_t TextFile::read(const CharacterSink& on_characters, const ByteSink& on_bytes) {
  constexpr std::size_t kMaxCut = kMaxUtf8Bytes - 1;
  std::vector<char> bytes(static_cast<std::size_t>(block_bytes_) + kMaxCut);
  std::vector<char32_t> characters(bytes.size());
  std::size_t cut = 0;  // bytes of a character that the last block ended in, now at the front
  int64_t offset = 0;   // bytes read from the file
  bool at_start = true;
  stream_.clear();
  stream_.seekg(0);
  for (;;) {
    const int64_t got = read_block(bytes.data() + cut);
    const std::string_view block(bytes.data(), cut + static_cast<std::size_t>(got));
    offset += got;
    if (offset > opened_.bytes) {
      fail_changed();  // at once: a file that grows faster than it is read has no end
    }
    if (on_bytes && got > 0) {
      on_bytes(block.substr(cut));
    }
    const Decoded decoded = decode_utf8(block, characters.data());
    const std::string_view rest = block.substr(decoded.bytes);
    if (rest.size() > kMaxCut || (got == 0 && !rest.empty())) {
      const int64_t where = offset - static_cast<int64_t>(rest.size());
      throw std::runtime_error(name_ + " is " + describe_invalid_utf8(rest.front(), where));
    }
    std::span<const char32_t> text(characters.data(), decoded.characters);
    if (at_start && !text.empty()) {
      at_start = false;
      text = text.subspan(text.front() == kByteOrderMark ? 1 : 0);
    }
    if (!text.empty()) {
      on_characters(text);
    }
    if (got == 0) {
      break;
    }
    cut = rest.size();
    std::memmove(bytes.data(), rest.data(), cut);
  }
  if (version() != opened_) {
    fail_changed();
  }
  return offset;
}

void TextFile::fail_changed() const {
  throw std::runtime_error(name_ + " changed while it was being read");
}

TextFile::Version TextFile::version() const {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path_, error));
  const fs::file_time_type written = error ? fs::file_time_type() : last_write_time(path_, error);
  if (error) {
    fail("read", name_, error.message());
  }
  return {bytes, written};
}

// Returns the number of bytes read; 0 at the end of the file.
int64_t TextFile::read_block(char* out) {
  try {
    stream_.read(out, block_bytes_);
  } catch (const std::ios::failure&) {
    fail("read", name_, std::generic_category().message(errno));
  }
  return stream_.gcount();
}

std::string read_text(const std::string& path) {
  std::string text;
  TextFile(path).read([&text](std::span<const char32_t> block) {
    for (const char32_t c : block) {
      append_utf8(c, text);
    }
  });
  return text;
}

}  // namespace chargrad::data
