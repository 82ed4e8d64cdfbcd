// A library to preload into a program: counts its calls of the file system inside one folder, and
// at one of them ends the process or lets the call fail. The environment says what:
//   FAULT_FOLDER  absolute; only calls on it and on what lies in it count
//   FAULT_AT      number of the call, from 1; 0: none
//   FAULT_KIND    kill: the process ends before the call; torn: half of a write is done, and the
//                 process ends; short: half of a write is done, as write() may; a number: the call
//                 fails with that errno; a negative one: that signal comes, and the call goes on
//   FAULT_TIMES   how many calls this befalls from there on; 0: all of them
//   FAULT_LOG     a file that gets a line "number name path" for each call that counts
// fsync is not passed on: a process that ends loses nothing of what it wrote.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <string>

namespace {

constexpr int kExitStatus = 86;

const char* setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

struct Plan {
  std::string folder = setting("FAULT_FOLDER", "");
  std::string kind = setting("FAULT_KIND", "kill");
  long at = std::atol(setting("FAULT_AT", "0"));
  long times = std::atol(setting("FAULT_TIMES", "1"));
  const char* log = std::getenv("FAULT_LOG");
};

const Plan& plan() {
  static const Plan once;
  return once;
}

// The C library's function behind ours.
template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::string path_of(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char path[PATH_MAX];
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof(path));
  return length < 0 ? std::string() : std::string(path, static_cast<size_t>(length));
}

std::string path_at(int folder, const char* path) {
  return folder == AT_FDCWD || path[0] == '/' ? path : path_of(folder) + "/" + path;
}

void write_log(long number, const char* name, const std::string& path) {
  const std::string line = std::to_string(number) + " " + name + " " + path + "\n";
  const long file = syscall(SYS_openat, AT_FDCWD, plan().log, O_WRONLY | O_CREAT | O_APPEND, 0666);
  syscall(SYS_write, file, line.data(), line.size());
  syscall(SYS_close, file);
}

enum class Fate { kPasses, kFails, kHalf, kHalfThenEnds };

// Counts a call and says what becomes of it; does not come back where the process is to end.
Fate fate(const char* name, const std::string& path, bool is_write = false) {
  static std::atomic<long> calls = 0;
  const std::string& folder = plan().folder;
  if (folder.empty() || path.compare(0, folder.size(), folder) != 0 ||
      (path.size() > folder.size() && path[folder.size()] != '/')) {
    return Fate::kPasses;
  }
  const long number = ++calls;
  if (plan().log != nullptr) {
    write_log(number, name, path);
  }
  if (plan().at == 0 || number < plan().at ||
      (plan().times != 0 && number >= plan().at + plan().times)) {
    return Fate::kPasses;
  }
  if (plan().kind == "short" || plan().kind == "torn") {
    return !is_write ? Fate::kPasses : (plan().kind == "short" ? Fate::kHalf : Fate::kHalfThenEnds);
  }
  if (plan().kind == "kill") {
    _exit(kExitStatus);
  }
  const int error = std::atoi(plan().kind.c_str());
  if (error < 0) {
    raise(-error);
    return Fate::kPasses;
  }
  errno = error;
  return Fate::kFails;
}

bool fails(const char* name, const std::string& path) {
  return fate(name, path) == Fate::kFails;
}

}  // namespace

// Defines a function that stands in for the C library's of the same name, whatever its header says
// of exceptions and of further arguments.
#define CHARGRAD_STAND_IN(Result, name, ...)                     \
  extern "C" Result stand_in_##name(__VA_ARGS__) __asm__(#name); \
  using Function_##name = Result (*)(__VA_ARGS__);               \
  extern "C" __attribute__((visibility("default"))) Result stand_in_##name(__VA_ARGS__)

CHARGRAD_STAND_IN(int, open, const char* path, int flags, mode_t mode) {
  return fails("open", path) ? -1 : next<Function_open>("open")(path, flags, mode);
}

CHARGRAD_STAND_IN(int, openat, int folder, const char* path, int flags, mode_t mode) {
  return fails("openat", path_at(folder, path))
             ? -1
             : next<Function_openat>("openat")(folder, path, flags, mode);
}

CHARGRAD_STAND_IN(int, close, int descriptor) {
  const bool failed = fails("close", path_of(descriptor));
  const int error = errno;
  const int result = next<Function_close>("close")(descriptor);  // as the system: closed anyway
  errno = failed ? error : errno;
  return failed ? -1 : result;
}

CHARGRAD_STAND_IN(ssize_t, write, int descriptor, const void* bytes, size_t count) {
  const Fate what = fate("write", path_of(descriptor), /*is_write=*/true);
  if (what == Fate::kFails) {
    return -1;
  }
  const bool half = what != Fate::kPasses && count > 1;
  const ssize_t done = next<Function_write>("write")(descriptor, bytes, half ? count / 2 : count);
  if (what == Fate::kHalfThenEnds) {
    _exit(kExitStatus);
  }
  return done;
}

CHARGRAD_STAND_IN(ssize_t, read, int descriptor, void* bytes, size_t count) {
  return fails("read", path_of(descriptor)) ? -1
                                            : next<Function_read>("read")(descriptor, bytes, count);
}

CHARGRAD_STAND_IN(ssize_t, pread, int descriptor, void* bytes, size_t count, off_t offset) {
  return fails("pread", path_of(descriptor))
             ? -1
             : next<Function_pread>("pread")(descriptor, bytes, count, offset);
}

CHARGRAD_STAND_IN(int, fsync, int descriptor) {
  return fails("fsync", path_of(descriptor)) ? -1 : 0;
}

CHARGRAD_STAND_IN(int, ftruncate, int descriptor, off_t length) {
  return fails("ftruncate", path_of(descriptor))
             ? -1
             : next<Function_ftruncate>("ftruncate")(descriptor, length);
}

CHARGRAD_STAND_IN(int, truncate, const char* path, off_t length) {
  return fails("truncate", path) ? -1 : next<Function_truncate>("truncate")(path, length);
}

CHARGRAD_STAND_IN(int, rename, const char* from, const char* to) {
  return fails("rename", to) ? -1 : next<Function_rename>("rename")(from, to);
}

CHARGRAD_STAND_IN(int, symlink, const char* target, const char* path) {
  return fails("symlink", path) ? -1 : next<Function_symlink>("symlink")(target, path);
}

CHARGRAD_STAND_IN(int, unlink, const char* path) {
  return fails("unlink", path) ? -1 : next<Function_unlink>("unlink")(path);
}

CHARGRAD_STAND_IN(int, unlinkat, int folder, const char* path, int flags) {
  return fails("unlinkat", path_at(folder, path))
             ? -1
             : next<Function_unlinkat>("unlinkat")(folder, path, flags);
}

CHARGRAD_STAND_IN(int, remove, const char* path) {
  return fails("remove", path) ? -1 : next<Function_remove>("remove")(path);
}

CHARGRAD_STAND_IN(int, mkdir, const char* path, mode_t mode) {
  return fails("mkdir", path) ? -1 : next<Function_mkdir>("mkdir")(path, mode);
}

CHARGRAD_STAND_IN(ssize_t, readlink, const char* path, char* target, size_t size) {
  return fails("readlink", path) ? -1 : next<Function_readlink>("readlink")(path, target, size);
}

CHARGRAD_STAND_IN(int, stat, const char* path, struct stat* out) {
  return fails("stat", path) ? -1 : next<Function_stat>("stat")(path, out);
}

CHARGRAD_STAND_IN(int, lstat, const char* path, struct stat* out) {
  return fails("lstat", path) ? -1 : next<Function_lstat>("lstat")(path, out);
}

CHARGRAD_STAND_IN(int, fstat, int descriptor, struct stat* out) {
  return fails("fstat", path_of(descriptor)) ? -1 : next<Function_fstat>("fstat")(descriptor, out);
}

CHARGRAD_STAND_IN(int, flock, int descriptor, int operation) {
  return fails("flock", path_of(descriptor)) ? -1
                                             : next<Function_flock>("flock")(descriptor, operation);
}

CHARGRAD_STAND_IN(DIR*, fdopendir, int descriptor) {
  return fails("fdopendir", path_of(descriptor))
             ? nullptr
             : next<Function_fdopendir>("fdopendir")(descriptor);
}

CHARGRAD_STAND_IN(dirent*, readdir, DIR* folder) {
  return fails("readdir", path_of(dirfd(folder))) ? nullptr
                                                  : next<Function_readdir>("readdir")(folder);
}
