// Programs that this one starts and ends.
#include "apps/cli/child_process.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "apps/cli/signals.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// The child's status, or -1 if it does not end within ten seconds.
int status_of(pid_t child) {
  for (int i = 0; i < 10000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

// Such a signal meets the child before it runs the other program, and must not be lost there.
TEST_CASE("a child that is told to end at once ends") {
  const TempFolder folder;
  catch_signals();
  for (int i = 0; i < 20; ++i) {
    const pid_t child = start_child({"sleep", "60"}, folder / "out", folder / "err");
    kill(child, SIGTERM);
    const int status = status_of(child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGTERM);
  }
  CHECK(signal_received() == 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) signal(number, SIG_DFL);
}

}  // namespace
}  // namespace frugal::apps
