// FileStore: regions of bytes in an unnamed file.
//
// The file has no name, so nothing of it is left when the process ends in any way. Released regions
// are used again, and free neighbours are joined; the file never shrinks. Where the file system
// allows it, bytes bypass the page cache (O_DIRECT). Elsewhere each region is written back and
// removed from the cache at once. Each region has a checksum of its bytes.
//
// In memory it has one buffer of kBufferBytes, category `workspace`, if bytes bypass the page
// cache. A store whose buffer is on `meta` takes no memory: it counts for a plan, and neither
// writes nor reads.
// Thread safety: one thread may write and read while others release regions and ask for figures.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace frugal::compress {

struct FileStoreOptions {
  std::string directory;  // folder of the file; it must exist
  int64_t max_bytes = 0;  // the most bytes of the file; 0: as many as the disk has
  bool direct = true;     // bypasses the page cache, where the file system allows it
  Device buffer = kCpu;   // where the buffer is: cpu or meta
};

class FileStore {
 public:
  static constexpr int64_t kBufferBytes = (int64_t{1} << 20) + 4096;
  struct Region {
    int64_t offset = 0, bytes = 0, capacity = 0;  // capacity: a multiple of whole blocks
    uint32_t checksum = 0;
  };

  // Errors: the directory takes no file, with the reason (OptionError: it is none); max_bytes
  // below 0.
  explicit FileStore(const FileStoreOptions& options);
  ~FileStore();
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // REQUIRES: the buffer is not on `meta`.
  // Both functions look at `cancel` after every MiB. Once it is set, they stop without a result.
  // Errors: the disk or max_bytes is full, or the device fails. The message names the directory,
  // what should be written and what is free. The region is released then.
  std::optional<Region> write(const void* data, int64_t bytes,
                              const std::atomic<bool>* cancel = nullptr);
  // false: cancelled. Errors: the device fails; the bytes differ from those that were written.
  bool read(const Region& region, void* data, const std::atomic<bool>* cancel = nullptr);
  void release(const Region& region) noexcept;

  int64_t used_bytes() const;  // bytes in regions, in whole blocks
  int64_t file_bytes() const;  // the highest end of a region so far
  int64_t buffer_bytes() const { return bounce_.defined() ? kBufferBytes : 0; }
  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  const std::string& directory() const { return options_.directory; }

 private:
  void open_file();
  Region take(int64_t bytes);
  bool write_chunks(Region& region, const char* data, const std::atomic<bool>* cancel);
  // Transfers one chunk. Errors: what errno says, after the words of `doing`.
  void transfer(bool writing, char* data, int64_t bytes, int64_t offset, int64_t wanted);
  void settle(const Region& region, bool written) const;
  [[noreturn]] void fail(bool writing, int64_t bytes, int64_t offset, const std::string& why) const;

  FileStoreOptions options_;
  int file_ = -1;
  std::atomic<bool> direct_{false};
  Tensor bounce_;
  mutable std::mutex mutex_;         // guards the members below
  std::map<int64_t, int64_t> free_;  // offset -> capacity; no two are adjacent
  int64_t end_ = 0, highest_ = 0, used_ = 0;
};

}  // namespace frugal::compress
