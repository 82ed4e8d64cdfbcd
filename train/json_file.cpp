#include "train/json_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

namespace chargrad::train {

namespace {

[[noreturn]] void fail(const std::string& message) {
  throw std::runtime_error(message);
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      fail(fmt::format("cannot open {}: {}", shown(path), std::strerror(errno)));
    }
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// nlohmann keeps the last of two equal keys; this remembers the keys of the objects that are open.
class Watcher {
 public:
  explicit Watcher(const std::string& where) : where_(where) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    constexpr int kDeepest = 64;
    if (depth > kDeepest) {
      fail(fmt::format("{}: JSON nested deeper than {}", where_, kDeepest));
    }
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        fail(fmt::format("{}: key {} stands there twice", where_, shown(key)));
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> open_;
};

// Without the library's "[json.exception.parse_error.101] " in front.
std::string reason(const Json::exception& error) {
  constexpr size_t kLongest = 200;
  const std::string text = error.what();
  const size_t bracket = text.find("] ");
  return shown(bracket == std::string::npos ? text : text.substr(bracket + 2), kLongest);
}

}  // namespace

std::string read_whole_file(const std::string& path, int64_t max_bytes) {
  const OpenFile file(path);
  std::string bytes;
  std::vector<char> block(1 << 16);
  while (true) {
    const ssize_t got = read(file.descriptor(), block.data(), block.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail(fmt::format("cannot read {}: {}", shown(path), std::strerror(errno)));
    }
    if (got == 0) {
      return bytes;
    }
    if (static_cast<int64_t>(bytes.size()) + got > max_bytes) {
      fail(fmt::format("{} is longer than {} bytes", shown(path), max_bytes));
    }
    bytes.append(block.data(), static_cast<size_t>(got));
  }
}

Json parse_json(const std::string& text, const std::string& where, Comments comments) {
  try {
    return Json::parse(text, Watcher(where), /*allow_exceptions=*/true,
                       comments == Comments::kAllowed);
  } catch (const Json::exception& error) {
    fail(fmt::format("{}: {}", where, reason(error)));
  }
}

Json read_json_file(const std::string& path, Comments comments) {
  constexpr int64_t kLargest = int64_t{16} << 20;
  return parse_json(read_whole_file(path, kLargest), shown(path), comments);
}

}  // namespace chargrad::train
