// Stands before libc in a process (LD_PRELOAD), counts its calls that touch a folder, and lets one
// of them fail, or ends the process there as kill -9 does. It can also write down what was done, so
// that a test can tell what a power cut would leave (tests/campaign/campaign.py).
//   FRUGAL_WATCH_FOLDER=PATH    which files are watched
//   FRUGAL_WATCH_FAIL=CALL:N    the N-th call of this kind fails, from 1 on (kKinds; "any": all
//   calls
//                               on files), with ENOSPC, EIO or ENOMEM
//   FRUGAL_WATCH_STACK=1        says on stderr from where the call came that fails
//   FRUGAL_WATCH_KILL=CALL:N    the process ends right before that call
//   FRUGAL_WATCH_COUNTS=FILE    gets a line "CALL NUMBER" for each kind when the process ends
//   FRUGAL_WATCH_TRACE=FILE     gets a record for each call that changed a file or a folder
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace {

enum Kind {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kName,
  kRemove,
  kFolder,
  kCut,
  kThread,
  kMap,
  kNew,
  kAny,
  kCount
};
constexpr const char* kKinds[] = {"open",   "read", "write",  "sync", "name", "remove",
                                  "folder", "cut",  "thread", "map",  "new",  "any"};
constexpr int kMostFiles = 1024;

std::atomic<long> counts[kCount];
std::atomic<bool> watched[kMostFiles];  // by descriptor
long fail_at = 0, kill_at = 0;
int fail_kind = -1, kill_kind = -1;
bool show_stack = false;
char folder[PATH_MAX];
size_t folder_length = 0;
int trace_file = -1;
pthread_mutex_t trace_mutex = PTHREAD_MUTEX_INITIALIZER;

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void parse(const char* variable, int& kind, long& at) {
  const char* const text = getenv(variable);
  const char* const colon = text == nullptr ? nullptr : strchr(text, ':');
  if (colon == nullptr) return;
  for (int i = 0; i < kCount; ++i)
    if (strlen(kKinds[i]) == static_cast<size_t>(colon - text) &&
        strncmp(kKinds[i], text, static_cast<size_t>(colon - text)) == 0)
      kind = i;
  at = atol(colon + 1);
}

__attribute__((constructor)) void start() {
  const char* const path = getenv("FRUGAL_WATCH_FOLDER");
  if (path != nullptr && realpath(path, folder) != nullptr) folder_length = strlen(folder);
  parse("FRUGAL_WATCH_FAIL", fail_kind, fail_at);
  parse("FRUGAL_WATCH_KILL", kill_kind, kill_at);
  show_stack = getenv("FRUGAL_WATCH_STACK") != nullptr;
  if (const char* const file = getenv("FRUGAL_WATCH_TRACE"))
    trace_file = next<int(const char*, int, ...)>("open")(
        file, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
}

__attribute__((destructor)) void finish() {
  const char* const path = getenv("FRUGAL_WATCH_COUNTS");
  if (path == nullptr) return;
  char text[512];
  size_t length = 0;
  for (int i = 0; i < kCount; ++i)
    length += static_cast<size_t>(
        snprintf(text + length, sizeof(text) - length, "%s %ld\n", kKinds[i], counts[i].load()));
  const int file =
      next<int(const char*, int, ...)>("open")(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  if (next<ssize_t(int, const void*, size_t)>("write")(file, text, length) < 0) return;
  close(file);
}

bool below(const char* path) {
  if (folder_length == 0 || path == nullptr) return false;
  char whole[PATH_MAX];
  if (path[0] != '/') {
    if (getcwd(whole, sizeof(whole)) == nullptr) return false;
    const size_t length = strlen(whole);
    if (length + strlen(path) + 2 > sizeof(whole)) return false;
    whole[length] = '/';
    memcpy(whole + length + 1, path, strlen(path) + 1);
    path = whole;
  }
  return strncmp(path, folder, folder_length) == 0 &&
         (path[folder_length] == '/' || path[folder_length] == '\0');
}

bool is_watched(int file) { return file >= 0 && file < kMostFiles && watched[file]; }

// Calls from inside of oneDNN are not counted: version 2.6 takes no notice of a mapping that fails,
// and ends with a signal.
bool from_library(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         strstr(info.dli_fname, "libdnnl") != nullptr;
}

// Counts a call; true: it is to fail.
bool counted(Kind kind) {
  const auto one = [](int each) {
    const long number = ++counts[each];
    if (each == kill_kind && number == kill_at) kill(getpid(), SIGKILL);
    if (each != fail_kind || number != fail_at) return false;
    if (show_stack) {
      void* callers[32];
      backtrace_symbols_fd(callers, backtrace(callers, 32), STDERR_FILENO);
    }
    return true;
  };
  const bool fails = one(kind);
  return (kind < kThread && one(kAny)) || fails;
}

// A record: a line of text, then `bytes` of data.
void note(const std::string& line, const void* data = nullptr, size_t bytes = 0) {
  if (trace_file < 0) return;
  const auto put = next<ssize_t(int, const void*, size_t)>("write");
  pthread_mutex_lock(&trace_mutex);
  const std::string text = line + "\n";
  if (put(trace_file, text.data(), text.size()) < 0 ||
      (bytes > 0 && put(trace_file, data, bytes) != static_cast<ssize_t>(bytes)))
    _exit(99);
  pthread_mutex_unlock(&trace_mutex);
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char whole[PATH_MAX];
  return getcwd(whole, sizeof(whole)) == nullptr ? path : std::string(whole) + "/" + path;
}

long inode(int file) {
  struct stat info;
  return fstat(file, &info) == 0 ? static_cast<long>(info.st_ino) : -1;
}

long inode(const char* path) {
  struct stat info;
  return lstat(path, &info) == 0 ? static_cast<long>(info.st_ino) : -1;
}

int opened(const char* path, int flags, mode_t mode) {
  const auto real = next<int(const char*, int, ...)>("open");
  if (!below(path)) return real(path, flags, mode);
  if (counted(kOpen)) {
    errno = (flags & O_ACCMODE) == O_RDONLY ? EIO : ENOSPC;
    return -1;
  }
  const bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  const bool there = access(path, F_OK) == 0;
  const int file = real(path, flags, mode);
  if (file < 0) return file;
  if (file < kMostFiles) watched[file] = true;
  if (!unnamed && !there && (flags & O_CREAT) != 0)
    note("create " + std::to_string(inode(file)) + " " + absolute(path));
  else if (!unnamed && there && (flags & O_TRUNC) != 0)
    note("cut " + std::to_string(inode(file)) + " 0");
  return file;
}

mode_t mode_in(int flags, va_list list) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE
             ? static_cast<mode_t>(va_arg(list, int))
             : 0;
}

void note_write(int file, const void* data, ssize_t wrote, off_t at) {
  if (wrote <= 0 || trace_file < 0) return;
  note("write " + std::to_string(inode(file)) + " " + std::to_string(at) + " " +
           std::to_string(wrote),
       data, static_cast<size_t>(wrote));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return opened(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return opened(path, flags | O_LARGEFILE, mode);
}

FILE* fopen(const char* path, const char* mode) {
  const auto real = next<FILE*(const char*, const char*)>("fopen");
  if (!below(path)) return real(path, mode);
  if (counted(kOpen)) {
    errno = EIO;
    return nullptr;
  }
  const bool there = access(path, F_OK) == 0;
  FILE* const stream = real(path, mode);
  if (stream == nullptr) return nullptr;
  const int file = fileno(stream);
  if (file < kMostFiles) watched[file] = true;
  if (mode[0] != 'r' && !there)
    note("create " + std::to_string(inode(file)) + " " + absolute(path));
  else if (mode[0] == 'w')
    note("cut " + std::to_string(inode(file)) + " 0");
  return stream;
}

FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

int close(int file) {
  if (file >= 0 && file < kMostFiles) watched[file] = false;
  return next<int(int)>("close")(file);
}

ssize_t read(int file, void* data, size_t bytes) {
  if (is_watched(file) && counted(kRead)) {
    errno = EIO;
    return -1;
  }
  return next<ssize_t(int, void*, size_t)>("read")(file, data, bytes);
}

size_t fread(void* data, size_t size, size_t count, FILE* stream) {
  if (is_watched(fileno(stream)) && counted(kRead)) {
    errno = EIO;
    return 0;
  }
  return next<size_t(void*, size_t, size_t, FILE*)>("fread")(data, size, count, stream);
}

ssize_t write(int file, const void* data, size_t bytes) {
  if (!is_watched(file)) return next<ssize_t(int, const void*, size_t)>("write")(file, data, bytes);
  if (counted(kWrite)) {
    errno = ENOSPC;
    return -1;
  }
  struct stat info;
  off_t at = lseek(file, 0, SEEK_CUR);
  if ((fcntl(file, F_GETFL) & O_APPEND) != 0 && fstat(file, &info) == 0) at = info.st_size;
  const ssize_t wrote = next<ssize_t(int, const void*, size_t)>("write")(file, data, bytes);
  note_write(file, data, wrote, at);
  return wrote;
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  if (is_watched(file) && counted(kWrite)) {
    errno = ENOSPC;
    return -1;
  }
  const ssize_t wrote =
      next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file, data, bytes, at);
  if (is_watched(file)) note_write(file, data, wrote, at);
  return wrote;
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off_t at) {
  return pwrite(file, data, bytes, at);
}

int fsync(int file) {
  if (!is_watched(file)) return next<int(int)>("fsync")(file);
  if (counted(kSync)) {
    errno = EIO;
    return -1;
  }
  note("sync " + std::to_string(inode(file)));
  return 0;  // a test loses no power, so nothing waits for the disk
}

int fdatasync(int file) { return fsync(file); }

int rename(const char* from, const char* to) {
  if (!below(from) && !below(to)) return next<int(const char*, const char*)>("rename")(from, to);
  if (counted(kName)) {
    errno = EIO;
    return -1;
  }
  const int done = next<int(const char*, const char*)>("rename")(from, to);
  if (done == 0) note("rename " + absolute(from) + "\t" + absolute(to));
  return done;
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  const auto real = next<int(int, const char*, int, const char*, int)>("linkat");
  if (!below(to)) return real(from_folder, from, to_folder, to, flags);
  if (counted(kName)) {
    errno = EIO;
    return -1;
  }
  const int done = real(from_folder, from, to_folder, to, flags);
  if (done == 0) note("create " + std::to_string(inode(to)) + " " + absolute(to));
  return done;
}

int unlink(const char* path) {
  if (!below(path)) return next<int(const char*)>("unlink")(path);
  if (counted(kRemove)) {
    errno = EIO;
    return -1;
  }
  const int done = next<int(const char*)>("unlink")(path);
  if (done == 0) note("remove " + absolute(path));
  return done;
}

int rmdir(const char* path) {
  if (!below(path)) return next<int(const char*)>("rmdir")(path);
  if (counted(kRemove)) {
    errno = EIO;
    return -1;
  }
  const int done = next<int(const char*)>("rmdir")(path);
  if (done == 0) note("remove " + absolute(path));
  return done;
}

int remove(const char* path) {
  if (!below(path)) return next<int(const char*)>("remove")(path);
  struct stat info;
  return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) ? rmdir(path) : unlink(path);
}

int mkdir(const char* path, mode_t mode) {
  if (!below(path)) return next<int(const char*, mode_t)>("mkdir")(path, mode);
  if (counted(kFolder)) {
    errno = ENOSPC;
    return -1;
  }
  const int done = next<int(const char*, mode_t)>("mkdir")(path, mode);
  if (done == 0) note("folder " + std::to_string(inode(path)) + " " + absolute(path));
  return done;
}

int ftruncate(int file, off_t bytes) {
  if (!is_watched(file)) return next<int(int, off_t)>("ftruncate")(file, bytes);
  if (counted(kCut)) {
    errno = EIO;
    return -1;
  }
  const int done = next<int(int, off_t)>("ftruncate")(file, bytes);
  if (done == 0) note("cut " + std::to_string(inode(file)) + " " + std::to_string(bytes));
  return done;
}

int ftruncate64(int file, off_t bytes) { return ftruncate(file, bytes); }

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*f)(void*),
                   void* argument) {
  if (counted(kThread)) return EAGAIN;
  return next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create")(
      thread, attributes, f, argument);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t at) {
  if (!from_library(__builtin_return_address(0)) && counted(kMap)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return next<void*(void*, size_t, int, int, int, off_t)>("mmap")(address, bytes, protection, flags,
                                                                  file, at);
}

}  // extern "C"

void* operator new(size_t bytes) {
  if (!from_library(__builtin_return_address(0)) && counted(kNew)) throw std::bad_alloc();
  if (void* const block = malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { free(block); }
void operator delete(void* block, size_t) noexcept { free(block); }
