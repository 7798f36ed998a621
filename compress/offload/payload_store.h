// PayloadStore: packed payloads between a window of memory and a file.
//
// In memory: at most `window` bytes of payloads, category `packed`, plus the one that waits to be
// taken in or was unpacked last, and beside that what is just being read; one larger than the
// window goes alone. Below half a window nothing
// is written. Beyond, one thread writes the oldest payloads, which backward needs last, and they
// stay in memory until their room is needed. Out of memory go first, of what is in the file:
// payloads that were used, the longest unused first; then the oldest unused; then those asked for
// ahead. A payload is written once, its bytes in the file are released when it is dropped, and one
// that is dropped before is never written. prefetch() reads where the window has room or holds what
// was used or is older, else later, as soon as payloads are dropped. pin() goes before everything
// else. A window that does not hold what one node of backward uses makes it read payloads again. A
// payload may be somebody else's tensor too, who must not write to it while it is in memory. On
// `meta`, payloads come and go as with a disk that has read them just when they are used or must
// make room. Nothing is written or read there, and no call waits: where what is pinned fills the
// window, a payload is taken in beside it.
//
// Payloads on CUDA go to pinned host memory instead (compress/offload/host_store.h), by the same
// calls and with a window of their own; `stats` and `resident_bytes` leave them out.
//
// A file that takes no more is no error while the window has room; each put() tries again.
// Thread safety: all functions. Memory is taken by callers alone, never by the thread that writes.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>

#include "compress/offload/file_store.h"
#include "compress/offload/host_store.h"

namespace frugal::compress {

struct OffloadOptions {
  std::string directory;                // see FileStoreOptions
  int64_t window = int64_t{256} << 20;  // bytes
  int64_t max_bytes = 0;
  bool direct = true;
};

struct OffloadStats {
  int64_t written = 0, read = 0;                // bytes of payloads
  double pack_seconds = 0, unpack_seconds = 0;  // waited for writes, for reads
  OffloadStats operator+(const OffloadStats& other) const {
    return {written + other.written, read + other.read, pack_seconds + other.pack_seconds,
            unpack_seconds + other.unpack_seconds};
  }
};

class PayloadStore {
 public:
  using Id = uint64_t;

  // Errors: those of FileStore; a window below 0.
  explicit PayloadStore(const OffloadOptions& options);
  ~PayloadStore();  // REQUIRES: every payload was dropped
  PayloadStore(const PayloadStore&) = delete;
  PayloadStore& operator=(const PayloadStore&) = delete;

  // Takes `payload` in, waiting for room. Errors: the window is full of what the file does not
  // take, see FileStore::write; then nothing was taken in.
  Id put(Tensor payload);
  // The payload, in memory until unpin(). Errors: a payload that was written in place; OutOfMemory,
  // those of FileStore::read, after which the payload can be asked for again.
  Tensor pin(Id id);
  void unpin(Id id) noexcept;
  void prefetch(Id id) noexcept;  // the order of calls is the order of use
  void drop(Id id) noexcept;      // REQUIRES: not pinned

  OffloadStats stats() const;
  int64_t resident_bytes() const;  // of payloads in memory
  const FileStore& file() const { return file_; }
  const HostStore* host() const { return host_.get(); }  // null until a payload on CUDA came

 private:
  static constexpr Id kOnHost = Id{1} << 63;  // set in the ids of the host store's payloads
  enum class Transfer : uint8_t { none, queued, reading, writing };
  struct Item {
    Tensor payload;  // undefined: not in memory
    Shape shape;
    DType dtype{};
    Device device{};
    int64_t bytes = 0;
    FileStore::Region region;
    uint64_t version = 0;  // of the payload's storage
    bool in_file = false;  // on `meta`: as if
    bool changed = false;  // it was written in place before it left
    Transfer transfer = Transfer::none;
    bool wished = false;  // waits in wishes_
    bool ahead = false;   // asked for, not used since
    int pins = 0;
    uint64_t used = 0;  // when last, by clock_; 0: never
    uint64_t walk = 0;  // during which
    std::atomic<bool> cancel{false};
    std::string error;  // of the last read
  };
  using Lock = std::unique_lock<std::mutex>;

  bool fits(int64_t bytes) const { return resident_ == 0 || resident_ + bytes <= options_.window; }
  bool may_go(const Item& item) const;
  std::map<Id, Item>::iterator first_to_go(Id prefetched);
  bool make_room(int64_t bytes, Id prefetched);
  void let_go(Item& item);
  static bool was_changed(const Item& item);
  void load(Id id, Item& item, bool at_once);
  void grant_wishes() noexcept;
  void run();
  void write(Lock& lock, Item& item);
  void read(Lock& lock, Item& item);
  Item* to_write();

  OffloadOptions options_;
  std::unique_ptr<HostStore> host_;
  FileStore file_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::map<Id, Item> items_;
  std::deque<Id> reads_, wishes_;
  Id next_ = 1;
  uint64_t clock_ = 0, walk_ = 0;
  bool used_since_wish_ = false;
  int64_t resident_ = 0, dirty_ = 0;  // dirty: in memory alone
  int waiting_ = 0;                   // calls of put() that wait for room
  bool busy_ = false, full_ = false, stop_ = false;
  std::string failure_;  // why the file is full
  OffloadStats stats_;
  std::thread thread_;
};

}  // namespace frugal::compress
