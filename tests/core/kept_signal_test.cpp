#include "core/kept_signal.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <csignal>

#include "core/parallel.h"

namespace {

volatile std::sig_atomic_t ours = 0, theirs = 0;
extern "C" void count_ours(int) { ours = ours + 1; }
extern "C" void count_theirs(int) { theirs = theirs + 1; }

}  // namespace

TEST_CASE("a kept signal waits, and its handler and flags are those from before") {
  struct sigaction action {};
  action.sa_handler = count_ours;
  action.sa_flags = SA_RESTART;
  struct sigaction before {};
  sigaction(SIGUSR2, &action, &before);
  // Threads of a pool exist before.
  frugal::parallel_for(0, 4, 1, [](int64_t, int64_t) {});
  {
    const frugal::KeptSignal kept(SIGUSR2);
    std::signal(SIGUSR2, count_theirs);
    kill(getpid(), SIGUSR2);
    CHECK(ours == 0);
    CHECK(theirs == 0);
  }
  CHECK(ours == 1);
  CHECK(theirs == 0);
  struct sigaction after {};
  sigaction(SIGUSR2, nullptr, &after);
  const bool is_ours = after.sa_handler == count_ours;  // doctest prints no functions
  CHECK(is_ours);
  CHECK((after.sa_flags & SA_RESTART) != 0);
  {
    const frugal::KeptSignal kept(SIGUSR2, frugal::KeptSignal::Delivery::now);
    std::signal(SIGUSR2, count_theirs);
    kill(getpid(), SIGUSR2);
    CHECK(theirs == 1);
  }
  kill(getpid(), SIGUSR2);
  CHECK(ours == 2);
  sigaction(SIGUSR2, &before, nullptr);
}
