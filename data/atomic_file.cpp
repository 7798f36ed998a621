#include "data/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace frugal::data {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  struct stat target;
  FRUGAL_CHECK(!path_.empty(), "[write] expected a file name, got an empty one");
  FRUGAL_CHECK(stat(path_.c_str(), &target) != 0 || S_ISREG(target.st_mode),
               "[write] expected a regular file at {}, got a directory or a device", path_);
  // Not truncated before it is locked: another process may be writing it.
  file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) fail("open");
  struct stat here, there;
  const bool locked = flock(file_, LOCK_EX | LOCK_NB) == 0;
  // Renamed between open and lock: then the lock is on the finished file.
  if (!locked || fstat(file_, &here) != 0 || stat(temporary_.c_str(), &there) != 0 ||
      here.st_ino != there.st_ino) {
    close(file_);
    throw Error(fmt::format("[write] cannot write {}: another process is writing it", path_));
  }
  if (S_ISREG(here.st_mode) && ftruncate(file_, 0) != 0) {
    const int reason = errno;
    unlink(temporary_.c_str());
    close(file_);
    errno = reason;
    fail("truncate");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  unlink(temporary_.c_str());
  close(file_);
}

void AtomicFile::fail(const char* doing) const {
  const int reason = errno;
  throw Error(fmt::format("[write] cannot {} {} for {}: {}", doing, temporary_, path_,
                          std::strerror(reason)));
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(file_, from, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write");
    from += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
}

void AtomicFile::commit() {
  if (fsync(file_) != 0) fail("fsync");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  close(file_);
  file_ = -1;
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) fail("open the folder of");
  // Some file systems cannot sync a directory and say so with EINVAL; the file itself is safe.
  const bool synced = fsync(directory) == 0 || errno == EINVAL;
  close(directory);
  if (!synced) fail("fsync the folder of");
}

void atomic_write(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

}  // namespace frugal::data
