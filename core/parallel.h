// Threads: OpenMP, shared with oneDNN. Results must not depend on the number of threads: split
// reductions into chunks of a fixed size, never into one chunk for each thread.
#pragma once
#include <cstdint>
#include <functional>

namespace frugal {

int num_threads();
void set_num_threads(int threads);  // Errors: < 1

// While one lives, loops of this thread take at most so many threads. The last one counts.
class ThreadLimit {
 public:
  explicit ThreadLimit(int most);  // Errors: < 1
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

// Calls f(begin, end) over disjoint ranges of nearly equal size that cover [begin, end). There are
// ceil((end - begin) / grain) ranges, but no more than threads. An exception of f reaches the
// caller.
void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& f);

// How many ranges parallel_for() makes of `n` elements here. Buffers of ranges are allocated
// before: whether two that ranges allocate are alive together would depend on how threads meet, and
// so would the peak of memory.
int64_t parallel_ranges(int64_t n, int64_t grain);

}  // namespace frugal
