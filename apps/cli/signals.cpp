#include "apps/cli/signals.h"

#include <csignal>
#include <string>

namespace frugal::apps {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void remember(int number) { received = number; }

}  // namespace

void catch_signals() {
  received = 0;
  // A handler gets a stack of its own. On processors without AVX-512, oneDNN's matrix product keeps
  // the address of a small buffer in the stack pointer, so a handler on that stack would write over
  // what lies before the buffer.
  alignas(16) static char memory[64 << 10];
  stack_t stack = {};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART | SA_ONSTACK);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);  // mpirun hands it on and kills nobody
  // The terminal was closed. Under nohup this signal is ignored, and it stays ignored.
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write, not of the run
}

int signal_received() { return received; }

void forget_handlers() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    if (now.sa_handler == SIG_IGN) continue;
    now.sa_handler = SIG_DFL;
    now.sa_flags = 0;
    sigaction(number, &now, nullptr);
  }
}

namespace {

const char* word(int number) {
  return number == SIGINT    ? "interrupted"
         : number == SIGHUP  ? "hung up"
         : number == SIGUSR1 ? "stopped by SIGUSR1"
                             : "terminated";
}

}  // namespace

Interrupted::Interrupted(int number, const std::string& where)
    : std::runtime_error(std::string(word(number)) + " " + where), number_(number) {}

}  // namespace frugal::apps
