#include "train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "train/console.h"
#include "train/setting.h"

namespace chargrad::train {

namespace {

[[noreturn]] void fail(const char* what, const std::string& path, const std::string& reason) {
  throw std::runtime_error(fmt::format("metrics: cannot {} {}: {}", what, shown(path), reason));
}

[[noreturn]] void fail(const char* what, const std::string& path) {
  fail(what, path, std::strerror(errno));
}

// Writes all bytes or returns false with errno set.
bool write_all(int descriptor, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno != EINTR) {
      return false;
    }
    done += wrote > 0 ? static_cast<size_t>(wrote) : 0;
  }
  return true;
}

enum class Line { kKept, kLater, kUnreadable };

Line judge(const std::string& text, int64_t next_iter, bool eval_done) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return Line::kUnreadable;
  }
  const auto iter = object.find("iter");
  if (iter == object.end() || !iter->is_number_integer()) {
    return Line::kKept;
  }
  const auto kind = object.find("kind");
  const bool is_eval = kind != object.end() && *kind == "eval";
  const int64_t first_later = is_eval && eval_done ? next_iter + 1 : next_iter;
  return iter->get<int64_t>() >= first_later ? Line::kLater : Line::kKept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path)
    : path_(path),
      descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    fail("open", path_);
  }
}

MetricsFile::~MetricsFile() {
  close(descriptor_);
}

void MetricsFile::write(const IterMetrics& metrics) {
  // Times need no more digits than a clock has.
  const auto rounded = [](double value, double scale) {
    return json_number(std::round(value * scale) / scale);
  };
  write_line(fmt::format(
      R"({{"kind":"iter","iter":{},"loss":{},"lr":{},"grad_norm":{},"ms":{},"tokens_per_s":{}}})",
      metrics.iter, json_number(metrics.loss), json_number(metrics.lr),
      json_number(metrics.grad_norm), rounded(metrics.ms, 1000),
      rounded(metrics.tokens_per_s, 10)));
}

void MetricsFile::write(const EvalMetrics& metrics) {
  std::string head;
  if (metrics.head) {
    head = fmt::format(R"(,"attention_entropy":{},"grad_norm_query":{},"grad_norm_key":{})",
                       json_number(metrics.head->attention_entropy),
                       json_number(metrics.head->grad_norm_query),
                       json_number(metrics.head->grad_norm_key));
  }
  write_line(fmt::format(R"({{"kind":"eval","iter":{},"train_loss":{},"val_loss":{}{}}})",
                         metrics.iter, json_number(metrics.train_loss),
                         json_number(metrics.val_loss), head));
}

void MetricsFile::write_line(const std::string& object) {
  struct stat before {};
  if (fstat(descriptor_, &before) != 0) {
    fail("write", path_);
  }
  if (!write_all(descriptor_, object + "\n")) {
    const int error = errno;
    // If this fails too, the torn line is cut when the run is resumed.
    static_cast<void>(ftruncate(descriptor_, before.st_size) == 0);
    errno = error;
    fail("write", path_);
  }
}

void MetricsFile::sync() {
  if (fsync(descriptor_) != 0) {
    fail("sync", path_);
  }
}

void cut_metrics(const std::string& path, int64_t next_iter, bool eval_done) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) {
      return;
    }
    fail("open", path);
  }
  if (!S_ISREG(info.st_mode)) {
    fail("cut", path, "it is no regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail("open", path);
  }
  // A line without its line break is torn: getline reaches the end of the file in it.
  int64_t kept = 0, end = 0;
  std::string text;
  while (std::getline(file, text) && !file.eof()) {
    end += static_cast<int64_t>(text.size()) + 1;
    const Line line = judge(text, next_iter, eval_done);
    if (line == Line::kLater) {
      break;
    }
    kept = line == Line::kKept ? end : kept;
  }
  if (file.bad()) {
    fail("read", path, "input/output error");
  }
  if (kept != info.st_size && truncate(path.c_str(), kept) != 0) {
    fail("cut", path);
  }
}

}  // namespace chargrad::train
