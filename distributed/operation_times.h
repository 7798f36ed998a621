// OperationTimes: how long operations of all ranks took and how long the program waited for them.
// Internal to distributed. Thread safety: one thread.
#pragma once
#include <utility>
#include <vector>

#include "core/stopwatch.h"
#include "distributed/communicator.h"

namespace frugal::distributed {

class OperationTimes {
 public:
  struct Seconds {
    double communication = 0, waiting = 0;
  };

  // Waits for the operation and keeps its handle until its times are known.
  void wait(Pending pending) {
    if (!pending.done()) {
      const Stopwatch watch(known_.waiting);
      pending.wait();
    }
    pending.wait();  // puts the result in its place where wait() was not called above
    waited_.push_back(std::move(pending));
  }
  // What was not told before. Nothing here waits, so an operation that still runs on a GPU counts
  // in a later call.
  Seconds take() {
    std::erase_if(waited_, [&](const Pending& pending) {
      if (!pending.done()) return false;
      known_.communication += pending.seconds();
      known_.waiting += pending.stalled();
      return true;
    });
    return std::exchange(known_, {});
  }

 private:
  std::vector<Pending> waited_;
  Seconds known_;
};

}  // namespace frugal::distributed
