// FileStore: bytes in regions of an unnamed file.
//
// The file has no name, so that nothing is left of it when the process ends, however that happens.
// Regions that were released are used again, neighbours joined; the file keeps its highest length.
// Where the file system allows it, bytes go past the page cache (O_DIRECT); elsewhere each region
// is written back and leaves the cache at once. Each region carries a checksum of its bytes.
//
// In memory: one buffer of kBufferBytes, category `workspace`, where bytes go past the page cache.
// Thread safety: one thread may write and read while others release and ask for figures.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace frugal::compress {

struct FileStoreOptions {
  std::string directory;  // where the file lies; must exist
  int64_t max_bytes = 0;  // what the file may grow to; 0: what the disk has
  bool direct = true;     // past the page cache, where the file system allows it
};

class FileStore {
 public:
  static constexpr int64_t kBufferBytes = (int64_t{1} << 20) + 4096;
  struct Region {
    int64_t offset = 0, bytes = 0, capacity = 0;  // capacity: whole blocks
    uint32_t checksum = 0;
  };

  // Errors: the directory takes no file, saying why; max_bytes below 0.
  explicit FileStore(const FileStoreOptions& options);
  ~FileStore();
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Both look at `cancel` every MiB and, once it is set, stop without a result.
  // Errors: the disk or max_bytes is full, or the device fails, naming the directory, what was to
  // be written and what is free; the region is released then.
  std::optional<Region> write(const void* data, int64_t bytes,
                              const std::atomic<bool>* cancel = nullptr);
  // false: cancelled. Errors: the device fails; bytes that are not those written.
  bool read(const Region& region, void* data, const std::atomic<bool>* cancel = nullptr);
  void release(const Region& region) noexcept;

  int64_t used_bytes() const;  // in regions, whole blocks
  int64_t file_bytes() const;  // the highest end of a region so far
  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  const std::string& directory() const { return options_.directory; }

 private:
  void open_file();
  Region take(int64_t bytes);
  bool write_chunks(Region& region, const char* data, const std::atomic<bool>* cancel);
  // One chunk. Errors: as errno says, in `doing`'s words.
  void transfer(bool writing, char* data, int64_t bytes, int64_t offset, int64_t wanted);
  void settle(const Region& region, bool written) const;
  [[noreturn]] void fail(bool writing, int64_t bytes, int64_t offset, const std::string& why) const;

  FileStoreOptions options_;
  int file_ = -1;
  std::atomic<bool> direct_{false};
  Tensor bounce_;
  mutable std::mutex mutex_;         // of what follows
  std::map<int64_t, int64_t> free_;  // offset -> capacity, no two adjacent
  int64_t end_ = 0, highest_ = 0, used_ = 0;
};

}  // namespace frugal::compress
