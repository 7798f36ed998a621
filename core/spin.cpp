#include "core/spin.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/cores.h"

namespace frugal {
namespace {

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// The processor time on `core` over the elapsed time, for a thread that never waits. The scheduler
// gives a core to another thread after 3 to 4 milliseconds, so a measurement of 16 shows it. The
// calling thread stays on `core`: otherwise the threads of a new process often share one core for a
// while.
double busy_share(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof(only), &only) != 0) return 1;
  constexpr double kProbe = 0.016;
  const double start = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_THREAD_CPUTIME_ID);
  double elapsed = 0;
  while (elapsed < kProbe) elapsed = seconds(CLOCK_MONOTONIC) - start;
  return (seconds(CLOCK_THREAD_CPUTIME_ID) - used) / elapsed;
}

}  // namespace

double share_of_cores() {
  const cpu_set_t usable = usable_cores();
  if (CPU_COUNT(&usable) == 0) return 1;
  std::vector<double> shares(CPU_SETSIZE, 1.0);
  std::vector<std::thread> threads;
  try {
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &usable))
        threads.emplace_back([&share = shares[size_t(core)], core] { share = busy_share(core); });
  } catch (const std::system_error&) {
    // No more threads can be started. Those that run tell enough.
  }
  for (std::thread& thread : threads) thread.join();
  return *std::min_element(shares.begin(), shares.end());
}

void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // The resolved path, so that the restarted process has the program's name and not "exe".
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  // A short disturbance is not other work, so a second measurement must agree with the first.
  constexpr double kAlone = 0.85;
  const bool beside_others = share_of_cores() < kAlone && share_of_cores() < kAlone;
  const std::string count = std::to_string(beside_others ? 0 : kSpinCount);
  if (setenv("GOMP_SPINCOUNT", count.c_str(), 0) != 0) return;
  use_all_cores();               // else OpenMP would find one core in the program that starts
  execv(program.c_str(), argv);  // returns only on failure; then threads wait as before
}

}  // namespace frugal
