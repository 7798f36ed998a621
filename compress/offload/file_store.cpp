#include "compress/offload/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "compress/offload/file_store_checksum.h"
#include "core/integers.h"

namespace frugal::compress {
namespace {

constexpr int64_t kBlock = 4096;  // what O_DIRECT wants of offsets, lengths and addresses
constexpr int64_t kBytesAtOnce = FileStore::kBufferBytes - kBlock;

int64_t whole_blocks(int64_t bytes) { return round_up(bytes, kBlock); }

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kBlock == 0; }

char* aligned(void* data) {
  auto* bytes = static_cast<char*>(data);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % kBlock);
  return past == 0 ? bytes : bytes + (kBlock - past);
}

bool is_set(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

}  // namespace

FileStore::FileStore(const FileStoreOptions& options) : options_(options) {
  FRUGAL_CHECK(options.max_bytes >= 0, "[offload] expected max_bytes >= 0, got {}",
               options.max_bytes);
  FRUGAL_CHECK(!options.directory.empty(), "[offload] expected a directory, got an empty name");
  open_file();
  if (!direct()) return;
  CategoryScope scope(Category::workspace);
  try {
    bounce_ = Tensor::empty({kBufferBytes}, DType::u8, options.buffer);
  } catch (...) {
    close(file_);
    throw;
  }
}

FileStore::~FileStore() { close(file_); }

void FileStore::open_file() {
  const char* directory = options_.directory.c_str();
  const int flags = O_RDWR | O_CLOEXEC;
#ifdef O_TMPFILE
  if (options_.direct) {
    file_ = open(directory, flags | O_TMPFILE | O_EXCL | O_DIRECT, 0600);
    direct_ = file_ >= 0;
  }
  if (file_ < 0) file_ = open(directory, flags | O_TMPFILE | O_EXCL, 0600);
#endif
  if (file_ < 0) {  // a file system without unnamed files
    std::string path = options_.directory + "/frugal_offload_XXXXXX";
    file_ = mkostemp(path.data(), O_CLOEXEC);
    if (file_ >= 0) {
      unlink(path.c_str());
      if (options_.direct) direct_ = fcntl(file_, F_SETFL, flags | O_DIRECT) == 0;
    }
  }
  if (file_ >= 0) return;
  const int error = errno;
  const std::string why = fmt::format("expected a directory to write a file in, got {}: {}",
                                      options_.directory, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) throw OptionError("compression.offload", why);
  throw Error("[offload] " + why);
}

std::optional<FileStore::Region> FileStore::write(const void* data, int64_t bytes,
                                                  const std::atomic<bool>* cancel) {
  Region region = take(bytes);
  try {
    if (write_chunks(region, static_cast<const char*>(data), cancel)) {
      settle(region, true);
      return region;
    }
  } catch (...) {
    release(region);
    throw;
  }
  release(region);
  return std::nullopt;
}

bool FileStore::write_chunks(Region& region, const char* data, const std::atomic<bool>* cancel) {
  for (int64_t done = 0; done < region.bytes; done += kBytesAtOnce) {
    if (is_set(cancel)) return false;
    const int64_t n = std::min(region.bytes - done, kBytesAtOnce), at = region.offset + done;
    region.checksum = checksum(region.checksum, data + done, n);
    if (!direct() || (n % kBlock == 0 && is_aligned(data + done))) {
      transfer(true, const_cast<char*>(data + done), n, at, region.bytes);
      continue;
    }
    char* buffer = aligned(bounce_.raw());
    std::memcpy(buffer, data + done, static_cast<size_t>(n));
    std::memset(buffer + n, 0, static_cast<size_t>(whole_blocks(n) - n));
    transfer(true, buffer, whole_blocks(n), at, region.bytes);
  }
  return true;
}

bool FileStore::read(const Region& region, void* data, const std::atomic<bool>* cancel) {
  auto* to = static_cast<char*>(data);
  uint32_t sum = 0;
  for (int64_t done = 0; done < region.bytes; done += kBytesAtOnce) {
    if (is_set(cancel)) return false;
    const int64_t n = std::min(region.bytes - done, kBytesAtOnce), at = region.offset + done;
    if (!direct() || (n % kBlock == 0 && is_aligned(to + done))) {
      transfer(false, to + done, n, at, region.bytes);
    } else {
      char* buffer = aligned(bounce_.raw());
      transfer(false, buffer, whole_blocks(n), at, region.bytes);
      std::memcpy(to + done, buffer, static_cast<size_t>(n));
    }
    sum = checksum(sum, to + done, n);
  }
  settle(region, false);
  FRUGAL_CHECK(sum == region.checksum,
               "[offload] expected checksum {:08x}, got {:08x} at byte {} of the file in {} ({} "
               "bytes): what was written is not what was read",
               region.checksum, sum, region.offset, options_.directory, region.bytes);
  return true;
}

void FileStore::transfer(bool writing, char* data, int64_t bytes, int64_t offset, int64_t wanted) {
  while (bytes > 0) {
    const auto n = static_cast<size_t>(bytes);
    const ssize_t moved = writing ? pwrite(file_, data, n, offset) : pread(file_, data, n, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EINVAL && direct()) {
      // Some file systems accept O_DIRECT when the file is opened, and refuse it when it is used.
      if (fcntl(file_, F_SETFL, O_RDWR) == 0) {
        direct_ = false;
        continue;
      }
      errno = EINVAL;
    }
    if (moved < 0) fail(writing, wanted, offset, std::strerror(errno));
    if (moved == 0) fail(writing, wanted, offset, "the end of the file");
    data += moved;
    offset += moved;
    bytes -= moved;
  }
}

// Bytes that are not needed soon should not push others out of the page cache.
void FileStore::settle(const Region& region, bool written) const {
  if (direct() || region.capacity == 0) return;
#ifdef SYNC_FILE_RANGE_WRITE
  if (written)
    sync_file_range(
        file_, region.offset, region.capacity,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
#else
  if (written) fdatasync(file_);
#endif
  posix_fadvise(file_, region.offset, region.capacity, POSIX_FADV_DONTNEED);
}

void FileStore::fail(bool writing, int64_t bytes, int64_t offset, const std::string& why) const {
  if (!writing)
    throw Error(
        fmt::format("[offload] expected to read {} bytes at byte {} of the file in {}, got: {}",
                    bytes, offset, options_.directory, why));
  struct statvfs disk;
  std::string room = "unknown";
  if (fstatvfs(file_, &disk) == 0)
    room = fmt::format("{} bytes",
                       static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize));
  throw Error(fmt::format(
      "[offload] expected to write {} bytes to the file in {}, got: {} (free there: {}; in the "
      "file: {} bytes)",
      bytes, options_.directory, why, room, used_bytes()));
}

FileStore::Region FileStore::take(int64_t bytes) {
  Region region;
  region.bytes = bytes;
  region.capacity = whole_blocks(bytes);
  if (bytes == 0) return region;
  std::unique_lock lock(mutex_);
  // Takes the smallest region that fits, so that large regions stay whole.
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->second >= region.capacity && (best == free_.end() || it->second < best->second))
      best = it;
  if (best != free_.end()) {
    region.offset = best->first;
    const int64_t rest = best->second - region.capacity;
    if (rest > 0) free_.emplace(best->first + region.capacity, rest);
    free_.erase(best);
  } else {
    if (options_.max_bytes > 0 && end_ + region.capacity > options_.max_bytes) {
      const int64_t end = end_;
      lock.unlock();
      fail(true, bytes, end, fmt::format("a file of at most {} bytes", options_.max_bytes));
    }
    region.offset = end_;
    end_ += region.capacity;
    highest_ = std::max(highest_, end_);
  }
  used_ += region.capacity;
  return region;
}

void FileStore::release(const Region& region) noexcept {
  if (region.capacity == 0) return;
  const std::lock_guard lock(mutex_);
  used_ -= region.capacity;
  int64_t begin = region.offset, end = begin + region.capacity;
  auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == end) {
    end += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  if (end == end_) {
    end_ = begin;
    return;
  }
  try {
    free_.emplace(begin, end - begin);
  } catch (...) {  // no memory for the list's node: these bytes of the file stay unused
  }
}

int64_t FileStore::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

int64_t FileStore::file_bytes() const {
  const std::lock_guard lock(mutex_);
  return highest_;
}

}  // namespace frugal::compress
