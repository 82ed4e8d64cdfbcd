// Writing files so that a crash leaves either the old state or the new one, and reading them
// without trust. Every error is a std::runtime_error with the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace chargrad::train {

// Throws std::runtime_error "cannot WHAT PATH: reason" from errno.
[[noreturn]] void fail_errno(std::string_view what, const std::filesystem::path& path);

// A new file, written from front to end. Not copyable.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* bytes, size_t count);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Waits until all of it is on the disk and closes; without this call the file is not to be used.
  void finish();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// A file open for reading at any offset. Not copyable.
class FileReader {
 public:
  // Throws unless the path leads to a regular file that can be read.
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t size() const { return size_; }
  // Throws when the file ends before offset + count.
  void read(int64_t offset, void* bytes, size_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  int64_t size_ = 0;
};

// A new file with this text, on the disk.
void write_file(const std::filesystem::path& path, std::string_view text);

// write_file under another name beside `path`, renamed over it.
void replace_file(const std::filesystem::path& path, std::string_view text);

// Waits until the folder's entries are on the disk.
void sync_folder(const std::filesystem::path& folder);

// Makes `link` point to `target` by an atomic rename; `target` is stored as given.
void replace_link(const std::filesystem::path& link, const std::string& target);

// Puts the folder `from` in the place of `to` in one step; if `to` exists, it ends up under the
// name `from`. Returns whether it existed.
bool replace_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Holds a folder for one process until destroyed: a second holder throws. The system drops the
// lock when the process ends, however it ends.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace chargrad::train
