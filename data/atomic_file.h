// Files that appear whole or not at all: written beside their place as PATH.tmp, fsynced, renamed,
// and the directory fsynced.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace frugal::data {

// Until commit() succeeds, the file at `path` is what it was; a destroyed writer removes its
// temporary. A temporary left by a killed process is reused, and a lock keeps two processes apart.
class AtomicFile {
 public:
  // Errors: unwritable directory, a path that is no regular file, another writer at work.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);  // Errors: with path and reason, such as a full disk
  void commit();                               // the same

 private:
  [[noreturn]] void fail(const char* doing) const;
  std::string path_, temporary_;
  int file_ = -1;
};

void atomic_write(const std::string& path, std::string_view content);

}  // namespace frugal::data
