// Writing files so that a crash leaves either the old state or the new one, and reading them
// without trust. Every error is a std::runtime_error with the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace chargrad::train {

// A path as it goes into a message: one line.
std::string shown_path(const std::filesystem::path& path);

// Throws std::runtime_error "cannot WHAT PATH: reason" from errno.
[[noreturn]] void fail_errno(std::string_view what, const std::filesystem::path& path);

[[noreturn]] void fail_reading(const std::filesystem::path& path, const std::error_code& error);

// What has that name, which may be a link; not_found without any. Throws where that cannot be told.
std::filesystem::file_type type_at(const std::filesystem::path& path);

bool is_link(const std::filesystem::path& path);

// Whether anything has that name, be it a link that leads nowhere.
bool is_there(const std::filesystem::path& path);

// Names of what is in the folder, in no order.
std::vector<std::string> names_in(const std::filesystem::path& folder);

// Throws where the disk of `folder` is known to have room for fewer bytes; `what` reads "a file
// needs".
void check_room(const std::filesystem::path& folder, int64_t bytes, std::string_view what);

// Owns an open file. Not copyable.
class Descriptor {
 public:
  // open(2) with these flags and O_CLOEXEC; a failure reads "cannot WHAT PATH: reason".
  Descriptor(const std::filesystem::path& path, int flags, std::string_view what);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  // Whether `path` leads to this very file.
  bool is_at(const std::filesystem::path& path) const;
  // Writes all of it. False, with errno, where that fails; a part may be written then.
  bool write_all(std::string_view bytes) const;
  // False, with errno, where not all of the file is on the disk.
  bool sync() const;
  // Closes the file, after which the object is of no use. False, with errno, as close(2).
  bool close();

 private:
  int number_;
};

// A new file, written from front to end; its name must be free.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);

  void write(std::string_view bytes);
  void write(const void* bytes, size_t count) { write({static_cast<const char*>(bytes), count}); }
  // Waits until all of it is on the disk and closes; without this call the file is not to be used.
  void finish();

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

// What may be read: pipes and devices have no size, and opening one may wait for a writer.
enum class FileKind { kRegular, kAny };

class FileReader {
 public:
  // Throws unless the path leads to a file of this kind that can be read.
  explicit FileReader(const std::filesystem::path& path, FileKind kind = FileKind::kRegular);

  int64_t size() const { return size_; }  // of a regular file, when it was opened
  // Reads at any offset. Throws when the file ends before offset + count.
  // Requires: a regular file.
  void read(int64_t offset, void* bytes, size_t count) const;
  // Up to `count` bytes from where the last call of next() ended; fewer only at the end.
  size_t next(void* bytes, size_t count) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t size_ = 0;
};

// The bytes of a file; throws when there are more than `max_bytes`.
std::string read_whole_file(const std::filesystem::path& path, int64_t max_bytes,
                            FileKind kind = FileKind::kRegular);

// A new file with this text, on the disk.
void write_file(const std::filesystem::path& path, std::string_view text);

// write_file under another name beside `path`, renamed over it.
void replace_file(const std::filesystem::path& path, std::string_view text);

// Waits until the folder's entries are on the disk.
void sync_folder(const std::filesystem::path& folder);

// Removes a file, or a folder with all that it holds; none may be there.
void remove_path(const std::filesystem::path& path);

// Makes `link` point to `target` by an atomic rename; `target` is stored as given.
void replace_link(const std::filesystem::path& link, const std::string& target);

// The same without that: between the link that it takes the place of and the new one is none.
void make_link(const std::filesystem::path& link, const std::string& target);

// Gives a file, a link or a folder another name, and waits until that is on the disk.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Holds a folder for one process until destroyed: a second holder throws. The system drops the
// lock when the process ends, however it ends.
class FolderLock {
 public:
  static constexpr const char* kName = "lock";  // the file in the folder; it stays there

  explicit FolderLock(const std::filesystem::path& folder);

  // Whether the folder that has this name now is the one that is held.
  bool holds(const std::filesystem::path& folder) const;
  // The same, and its lock may have been removed.
  bool is_of(const std::filesystem::path& folder) const { return folder_.is_at(folder); }

 private:
  Descriptor file_;
  Descriptor folder_;
};

}  // namespace chargrad::train
