// MemoryTrace: what the allocator of one device holds after each allocation and each release.
#pragma once
#include <atomic>
#include <chrono>
#include <vector>

#include "core/memory.h"

namespace frugal {

// Records from its construction to stop() or its end. At most one trace lives at a time. Threads
// may allocate and release meanwhile.
class MemoryTrace {
 public:
  struct Event {
    double milliseconds = 0;  // since the trace began
    const char* phase = "";   // the text of the last mark()
    CategoryBytes live{};     // bytes, after the event
  };

  explicit MemoryTrace(Device device);  // Errors: another trace lives
  ~MemoryTrace();
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  // Names the phase to which the events from now on belong. Does nothing while no trace lives.
  // REQUIRES: `phase` is a string literal.
  static void mark(const char* phase);
  // REQUIRES: no other thread allocates or releases, or stop() was called.
  const std::vector<Event>& events() const { return events_; }
  void stop();  // ends the record; when it returns, no thread adds to it

  // For allocators: `of` now holds `live`. REQUIRES: the lock of that allocator is held.
  static void note(const Allocator& of, const CategoryBytes& live);

 private:
  const Allocator& allocator_;
  std::atomic<const char*> phase_ = "";
  std::vector<Event> events_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace frugal
