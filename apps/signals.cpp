#include "apps/signals.h"

#include <csignal>
#include <string>

namespace frugal::apps {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void remember(int number) { received = number; }

}  // namespace

void catch_signals() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write, not of the run
}

int signal_received() { return received; }

Interrupted::Interrupted(int number)
    : std::runtime_error(number == SIGINT ? "interrupted" : "terminated"), number_(number) {}

}  // namespace frugal::apps
