#include "core/memory/memory_trace.h"

namespace frugal {
namespace {

std::atomic<MemoryTrace*> living = nullptr;

}  // namespace

MemoryTrace::MemoryTrace(Device device) : allocator_(allocator(device)) {
  MemoryTrace* none = nullptr;
  FRUGAL_CHECK(living.compare_exchange_strong(none, this),
               "[memory_trace] expected one trace at a time, got a second one");
}

MemoryTrace::~MemoryTrace() { stop(); }

void MemoryTrace::stop() {
  if (living == this) living = nullptr;
  // note() runs under the allocator's lock, which a report takes, too.
  (void)allocator_.report();
}

void MemoryTrace::mark(const char* phase) {
  if (MemoryTrace* trace = living) trace->phase_ = phase;
}

void MemoryTrace::note(const Allocator& of, const CategoryBytes& live) {
  MemoryTrace* trace = living;
  if (trace == nullptr || &trace->allocator_ != &of) return;
  const std::chrono::duration<double, std::milli> since =
      std::chrono::steady_clock::now() - trace->begin_;
  trace->events_.push_back({since.count(), trace->phase_, live});
}

}  // namespace frugal
