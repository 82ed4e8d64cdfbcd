#include "train/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace chargrad::train {

namespace fs = std::filesystem;

void fail_errno(std::string_view what, const fs::path& path) {
  const int error = errno;
  throw std::runtime_error(
      fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

namespace {

int opened(const fs::path& path, int flags, std::string_view what) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    fail_errno(what, path);
  }
  return descriptor;
}

}  // namespace

FileWriter::FileWriter(const fs::path& path)
    : path_(path), descriptor_(opened(path, O_WRONLY | O_CREAT | O_TRUNC, "write")) {}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void FileWriter::write(const void* bytes, size_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, from, count);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      fail_errno("write", path_);
    }
    from += written;
    count -= static_cast<size_t>(written);
  }
}

void FileWriter::finish() {
  if (::fsync(descriptor_) != 0) {
    fail_errno("write", path_);
  }
  const int result = ::close(descriptor_);
  descriptor_ = -1;
  if (result != 0) {
    fail_errno("write", path_);
  }
}

FileReader::FileReader(const fs::path& path)
    : path_(path), descriptor_(opened(path, O_RDONLY | O_NONBLOCK, "open")) {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw std::runtime_error(fmt::format("cannot read {}: not a regular file", path.string()));
  }
  size_ = status.st_size;
}

FileReader::~FileReader() {
  ::close(descriptor_);
}

void FileReader::read(int64_t offset, void* bytes, size_t count) const {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, to, count, offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail_errno("read", path_);
    }
    if (got == 0) {
      throw std::runtime_error(
          fmt::format("cannot read {}: it ends at byte {}", path_.string(), offset));
    }
    to += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

void write_file(const fs::path& path, std::string_view text) {
  FileWriter file(path);
  file.write(text);
  file.finish();
}

void replace_file(const fs::path& path, std::string_view text) {
  const fs::path temporary = path.string() + ".tmp";
  write_file(temporary, text);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    fail_errno("replace", path);
  }
  sync_folder(path.parent_path());
}

void sync_folder(const fs::path& folder) {
  const int descriptor =
      opened(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY, "open");
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0) {
    errno = error;
    fail_errno("write", folder);
  }
}

void replace_link(const fs::path& link, const std::string& target) {
  const fs::path temporary = link.string() + ".tmp";
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    fail_errno("remove", temporary);
  }
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    fail_errno("make the link", temporary);
  }
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    fail_errno("replace", link);
  }
  sync_folder(link.parent_path());
}

bool replace_folder(const fs::path& from, const fs::path& to) {
  const bool existed = fs::exists(fs::symlink_status(to));
  const unsigned flags = existed ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) != 0) {
    fail_errno("replace", to);
  }
  sync_folder(to.parent_path());
  return existed;
}

FolderLock::FolderLock(const fs::path& folder)
    : descriptor_(opened(folder / "lock", O_RDWR | O_CREAT, "write")) {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(descriptor_);
    if (error == EWOULDBLOCK) {
      throw std::runtime_error(
          fmt::format("{} is in use by another training run", folder.string()));
    }
    errno = error;
    fail_errno("lock", folder / "lock");
  }
}

FolderLock::~FolderLock() {
  ::close(descriptor_);
}

}  // namespace chargrad::train
