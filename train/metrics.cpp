#include "train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "train/console.h"
#include "train/setting.h"

namespace chargrad::train {

namespace {

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

int64_t bytes_to_keep(const FileReader& file, const std::filesystem::path& path, int64_t next_iter,
                      bool eval_done) {
  constexpr size_t kBlock = size_t{1} << 16, kLongestLine = size_t{1} << 20;
  int64_t kept = 0, end = 0;
  std::string text;  // read and not judged
  for (size_t got = kBlock; got == kBlock;) {
    const size_t before = text.size();
    text.resize(before + kBlock);
    got = file.next(text.data() + before, kBlock);
    text.resize(before + got);
    // What has no line break is torn.
    size_t begin = 0;
    for (size_t stop; (stop = text.find('\n', begin)) != std::string::npos; begin = stop + 1) {
      const Line line = judge(text.substr(begin, stop - begin), next_iter, eval_done);
      if (line == Line::kLater) {
        return kept;
      }
      end += static_cast<int64_t>(stop + 1 - begin);
      kept = line == Line::kKept ? end : kept;
    }
    text.erase(0, begin);
    if (text.size() > kLongestLine) {
      throw std::runtime_error(
          fmt::format("cannot cut {}: the line after byte {} is longer than {}", shown_path(path),
                      end, kLongestLine));
    }
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::function<void()> hold)
    : path_(path), hold_(std::move(hold)) {
  open();
}

void MetricsFile::open() {
  file_ = std::make_unique<Descriptor>(path_, O_WRONLY | O_CREAT | O_APPEND, "write");
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
  constexpr size_t kMostWaiting = size_t{16} << 20;
  if (waiting_.size() < kMostWaiting) {
    waiting_ += object + "\n";
  }
  write_waiting();
}

void MetricsFile::write_waiting() {
  if (!file_->is_at(path_)) {  // removed, or another is there
    if (hold_) {
      hold_();
    }
    open();
    torn_at_.reset();
  }
  struct stat status {};
  if (fstat(file_->get(), &status) != 0) {
    fail_errno("write", path_);
  }
  if (torn_at_) {
    if (ftruncate(file_->get(), *torn_at_) != 0) {
      fail_errno("write", path_);
    }
    status.st_size = *torn_at_;
    torn_at_.reset();
  }
  if (!file_->write_all(waiting_)) {
    const int error = errno;
    if (ftruncate(file_->get(), status.st_size) != 0) {
      torn_at_ = status.st_size;
    }
    errno = error;
    fail_errno("write", path_);
  }
  waiting_.clear();
}

void MetricsFile::sync() {
  if (!waiting_.empty()) {
    write_waiting();
  }
  if (!file_->sync()) {
    fail_errno("write", path_);
  }
}

void cut_metrics(const std::filesystem::path& path, int64_t next_iter, bool eval_done) {
  if (std::error_code error; !std::filesystem::exists(path, error) && !error) {
    return;
  }
  const int64_t kept = bytes_to_keep(FileReader(path), path, next_iter, eval_done);
  if (truncate(path.c_str(), kept) != 0) {
    fail_errno("cut", path);
  }
}

}  // namespace chargrad::train
