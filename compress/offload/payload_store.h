// PayloadStore: packed payloads, in a window of memory and in a file.
//
// In memory there are at most `window` bytes of payloads, category `packed`, plus the one that
// waits to be taken in or was unpacked last, plus the one that is being read. A payload larger than
// the window is there alone. While payloads take less than half a window, nothing is written. Above
// that, one thread writes the oldest payloads, which the backward pass needs last. They stay in
// memory until their room is needed. Payloads that are in the file leave memory in this order:
// first those that were used, beginning with the one that was unused for longest; then the oldest
// that were not used; then those that were prefetched. A payload is written once. When it is
// dropped, its bytes in the file are released; if it is dropped earlier, it is never written.
// prefetch() reads at once if the window has room or holds payloads that were used or are older,
// otherwise later, when payloads are dropped. pin() comes before everything else. A window that
// does not hold what one node of the backward pass uses makes the store read payloads again. A
// payload may also be somebody else's tensor, who must not write to it while it is in memory.
//
// On `meta`, nothing is written or read, and no call waits. Payloads leave and return as if a disk
// had read them just when they are used, and as if writing were done when room is needed. If pinned
// payloads fill the window, a new payload is taken in beside it.
//
// Payloads on CUDA go to pinned host memory instead (compress/offload/host_store.h), through the
// same functions and with a window of their own; `stats` and `resident_bytes` do not include them.
//
// A file that takes no more bytes is no error while the window has room; each put() tries again.
// Thread safety: all functions. Only callers take memory, never the thread that writes.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "compress/offload/file_store.h"
#include "compress/offload/host_store.h"
#include "compress/offload/offload_options.h"

#include "core/option.h"
namespace frugal::compress {

class PayloadStore {
 public:
  using Id = uint64_t;

  // buffer: see FileStoreOptions; on `meta`, all payloads are there. Errors: those of FileStore; a
  // window below 0.
  explicit PayloadStore(const OffloadOptions& options, Device buffer = kCpu);
  ~PayloadStore();  // REQUIRES: every payload was dropped
  PayloadStore(const PayloadStore&) = delete;
  PayloadStore& operator=(const PayloadStore&) = delete;

  // Takes `payload` in, and waits for room. Errors: the window is full of payloads that the file
  // does not take, see FileStore::write; then nothing was taken in.
  Id put(Tensor payload);
  // The payload, which stays in memory until unpin(). Errors: a payload that was written in place;
  // OutOfMemory; those of FileStore::read. After these last two the payload can be asked for again.
  Tensor pin(Id id);
  void unpin(Id id) noexcept;
  void prefetch(Id id) noexcept;  // the order of calls is the order of use
  void drop(Id id) noexcept;      // REQUIRES: not pinned

  OffloadStats stats() const;
  int64_t resident_bytes() const;  // bytes of payloads in memory
  const FileStore& file() const { return file_; }
  const HostStore* host() const { return host_.get(); }  // null until the first payload on CUDA

 private:
  static constexpr Id kOnHost = Id{1} << 63;  // set in the ids of the host store's payloads
  enum class Transfer : uint8_t { none, queued, reading, writing };
  struct Item {
    Id id = 0;
    Tensor payload;  // undefined if it is not in memory
    Shape shape;
    DType dtype{};
    Device device{};
    int64_t bytes = 0;
    FileStore::Region region;
    uint64_t version = 0;  // version of the payload's storage when it came into memory
    bool in_file = false;  // always true on `meta`, where there is no file
    bool changed = false;  // it was written in place before it left
    Transfer transfer = Transfer::none;
    bool wished = false;  // it waits in wishes_
    bool ahead = false;   // prefetched and not used since
    int pins = 0;
    uint64_t used = 0;  // time of the last use, by clock_; 0: never
    uint64_t walk = 0;  // the walk of the last use
    std::atomic<bool> cancel{false};
    std::string error;  // why the last read failed; empty: it did not
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
  std::set<Id> here_;  // those with a payload in memory: few of many
  std::deque<Id> reads_, wishes_;
  Id next_ = 1;
  uint64_t clock_ = 0, walk_ = 0;
  bool used_since_wish_ = false;
  int64_t resident_ = 0, dirty_ = 0;  // dirty: bytes that are only in memory
  int waiting_ = 0;                   // calls of put() that wait for room
  bool busy_ = false, full_ = false, stop_ = false;
  std::string failure_;  // why the file is full
  OffloadStats stats_;
  std::thread thread_;
};

}  // namespace frugal::compress
