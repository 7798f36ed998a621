#include "core/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "core/each_thread.h"
#include "core/error.h"

namespace frugal {
namespace {

// A child of fork() has one thread. OpenMP would wait in it for ever for the others that the parent
// has. So they end before a fork, and the next loop of either process starts new ones.
[[maybe_unused]] const int at_fork =
    pthread_atfork([] { omp_pause_resource_all(omp_pause_soft); }, nullptr, nullptr);

thread_local int most_threads = std::numeric_limits<int>::max();

// oneDNN cuts its work into as many parts as omp_get_max_threads() says. OpenMP may have been told
// to take fewer threads than that (OMP_THREAD_LIMIT, OMP_DYNAMIC, OMP_MAX_ACTIVE_LEVELS=0). Then
// parts are not computed, or those that wait for each other wait for ever.
void agree_on_threads() {
  if (omp_get_dynamic() != 0) omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
  if (const int limit = omp_get_thread_limit(); omp_get_max_threads() > limit)
    omp_set_num_threads(limit);
}

}  // namespace

int num_threads() {
  agree_on_threads();
  return omp_get_max_threads();
}

void set_num_threads(int threads) {
  FRUGAL_CHECK(threads >= 1, "[threads] expected at least 1, got {}", threads);
  omp_set_num_threads(threads);
}

ThreadLimit::ThreadLimit(int most) : before_(most_threads) {
  FRUGAL_CHECK(most >= 1, "[threads] expected at least 1, got {}", most);
  most_threads = most;
}
ThreadLimit::~ThreadLimit() { most_threads = before_; }

int64_t parallel_ranges(int64_t n, int64_t grain) {
  if (n <= 0) return 0;
  if (omp_in_parallel()) return 1;
  return std::clamp<int64_t>((n + grain - 1) / std::max<int64_t>(grain, 1), 1,
                             std::min(num_threads(), most_threads));
}

void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& f) {
  const int64_t n = end - begin, chunks = parallel_ranges(n, grain);
  if (chunks <= 0) return;
  if (chunks == 1) return f(begin, end);
  std::exception_ptr error;
#pragma omp parallel for num_threads(static_cast <int>(chunks)) schedule(static)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    try {
      f(begin + n * chunk / chunks, begin + n * (chunk + 1) / chunks);
    } catch (...) {
#pragma omp critical(frugal_parallel_for)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

int threads_here() { return omp_in_parallel() != 0 ? 1 : num_threads(); }

void on_each_thread(int threads, const std::function<void(int)>& f) {
  if (threads == 1) return f(0);
#pragma omp parallel num_threads(threads)
  f(omp_get_thread_num());
}

}  // namespace frugal
