// Threads: OpenMP, shared with oneDNN. Results must not depend on the thread count: split
// reductions into chunks of fixed size, never one per thread.
#pragma once
#include <cstdint>
#include <functional>

namespace frugal {

int num_threads();
void set_num_threads(int threads);  // Errors: < 1

// Calls f(begin, end) over disjoint ranges of at least `grain` that cover [begin, end). Exceptions
// of f reach the caller.
void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& f);

}  // namespace frugal
