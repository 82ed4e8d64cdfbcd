#include "train/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "train/setting.h"

namespace chargrad::train {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(std::string_view what, const fs::path& path, std::string_view reason) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, shown_path(path), reason));
}

// Calls f until a signal no longer gets in between.
template <class F>
auto uninterrupted(const F& f) {
  auto result = f();
  while (result < 0 && errno == EINTR) {
    result = f();
  }
  return result;
}

}  // namespace

std::string shown_path(const fs::path& path) {
  constexpr size_t kLongest = 4096;
  return shown(path.string(), kLongest);
}

void fail_errno(std::string_view what, const fs::path& path) {
  fail(what, path, std::strerror(errno));
}

void fail_reading(const fs::path& path, const std::error_code& error) {
  throw std::runtime_error(fmt::format("cannot read {}: {}", shown_path(path), error.message()));
}

fs::file_type type_at(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::none) {
    fail_reading(path, error);
  }
  return type;
}

bool is_link(const fs::path& path) {
  return type_at(path) == fs::file_type::symlink;
}

bool is_there(const fs::path& path) {
  return type_at(path) != fs::file_type::not_found;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    fail_reading(folder, error);
  }
  return names;
}

void check_room(const fs::path& folder, int64_t bytes, std::string_view what) {
  struct statvfs disk = {};
  if (::statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) {
    return;  // a disk that does not tell
  }
  // Not f_bfree, be it root who asks: ext4 counts blocks there that nobody can have.
  const uint64_t room = disk.f_bavail * disk.f_frsize;
  if (room < static_cast<uint64_t>(bytes)) {
    throw std::runtime_error(fmt::format("the disk of {} has room for {} bytes, {} {}",
                                         shown_path(folder), room, what, bytes));
  }
}

Descriptor::Descriptor(const fs::path& path, int flags, std::string_view what)
    : number_(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); })) {
  if (number_ < 0) {
    fail_errno(what, path);
  }
}

Descriptor::~Descriptor() {
  static_cast<void>(close());
}

bool Descriptor::is_at(const fs::path& path) const {
  struct stat mine = {}, there = {};
  return ::fstat(number_, &mine) == 0 && ::stat(path.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

bool Descriptor::write_all(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written =
        uninterrupted([&] { return ::write(number_, bytes.data(), bytes.size()); });
    if (written < 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool Descriptor::sync() const {
  return uninterrupted([this] { return ::fsync(number_); }) == 0;
}

bool Descriptor::close() {
  // Linux closes also where close() was interrupted.
  const bool closed = number_ < 0 || ::close(number_) == 0 || errno == EINTR;
  number_ = -1;
  return closed;
}

FileWriter::FileWriter(const fs::path& path)
    : path_(path), file_(path, O_WRONLY | O_CREAT | O_EXCL, "write") {}

void FileWriter::write(std::string_view bytes) {
  if (!file_.write_all(bytes)) {
    fail_errno("write", path_);
  }
}

void FileWriter::finish() {
  if (!file_.sync() || !file_.close()) {
    fail_errno("write", path_);
  }
}

FileReader::FileReader(const fs::path& path, FileKind kind)
    : path_(path), file_(path, O_RDONLY | (kind == FileKind::kRegular ? O_NONBLOCK : 0), "open") {
  struct stat status = {};
  if (::fstat(file_.get(), &status) != 0) {
    fail_errno("read", path);
  }
  if (S_ISDIR(status.st_mode)) {
    fail("read", path, std::strerror(EISDIR));
  }
  if (kind == FileKind::kRegular && !S_ISREG(status.st_mode)) {
    fail("read", path, "not a regular file");
  }
  size_ = status.st_size;
}

void FileReader::read(int64_t offset, void* bytes, size_t count) const {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = uninterrupted([&] { return ::pread(file_.get(), to, count, offset); });
    if (got < 0) {
      fail_errno("read", path_);
    }
    if (got == 0) {
      fail("read", path_, fmt::format("it ends at byte {}", offset));
    }
    to += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

size_t FileReader::next(void* bytes, size_t count) const {
  auto* to = static_cast<char*>(bytes);
  size_t done = 0;
  while (done < count) {
    const ssize_t got = uninterrupted([&] { return ::read(file_.get(), to + done, count - done); });
    if (got < 0) {
      fail_errno("read", path_);
    }
    if (got == 0) {
      break;
    }
    done += static_cast<size_t>(got);
  }
  return done;
}

std::string read_whole_file(const fs::path& path, int64_t max_bytes, FileKind kind) {
  constexpr size_t kBlock = 1 << 16;
  const FileReader file(path, kind);
  const auto most = static_cast<size_t>(max_bytes);
  std::string bytes;
  size_t got = kBlock;
  while (got == kBlock) {
    const size_t before = bytes.size();
    bytes.resize(before + kBlock);
    got = file.next(bytes.data() + before, kBlock);
    bytes.resize(before + got);
    if (bytes.size() > most) {
      throw std::runtime_error(
          fmt::format("{} is longer than {} bytes", shown_path(path), max_bytes));
    }
  }
  return bytes;
}

void write_file(const fs::path& path, std::string_view text) {
  FileWriter file(path);
  file.write(text);
  file.finish();
}

void replace_file(const fs::path& path, std::string_view text) {
  const fs::path temporary = path.string() + ".tmp";
  FileWriter file(temporary);
  try {
    file.write(text);
    file.finish();
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail_errno("replace", path);
    }
  } catch (...) {
    ::unlink(temporary.c_str());  // gives its room back
    throw;
  }
  sync_folder(path.parent_path());
}

void sync_folder(const fs::path& folder) {
  const Descriptor file(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY, "open");
  if (!file.sync()) {
    fail_errno("write", folder);
  }
}

void remove_path(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail("remove", path, error.message());
  }
}

void replace_link(const fs::path& link, const std::string& target) {
  const fs::path temporary = link.string() + ".tmp";
  make_link(temporary, target);
  rename_path(temporary, link);
}

void make_link(const fs::path& link, const std::string& target) {
  if (is_link(link) && ::unlink(link.c_str()) != 0) {
    fail_errno("remove", link);
  }
  if (::symlink(target.c_str(), link.c_str()) != 0) {
    fail_errno("make the link", link);
  }
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_errno("rename to", to);
  }
  sync_folder(to.parent_path());
}

FolderLock::FolderLock(const fs::path& folder)
    : file_(folder / kName, O_RDWR | O_CREAT | O_NOFOLLOW, "write"),
      folder_(folder, O_PATH | O_DIRECTORY, "open") {
  if (uninterrupted([this] { return ::flock(file_.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno == EWOULDBLOCK) {
      throw std::runtime_error(
          fmt::format("{} is in use by another training run", shown_path(folder)));
    }
    fail_errno("lock", folder / kName);
  }
}

bool FolderLock::holds(const fs::path& folder) const {
  return file_.is_at(folder / kName);
}

}  // namespace chargrad::train
