// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the run to stop at the next step; a second one ends the
// process at once.
#pragma once
#include <stdexcept>
#include <string>

namespace frugal::apps {

void catch_signals();
int signal_received();  // the signal's number, or 0
// In a child between fork() and exec(): signals that would be caught have their usual effect again.
// What is ignored stays ignored. It calls only what a child of a process with threads may call.
void forget_handlers();

// Carries the signal out of the loop once the checkpoint is written: the binary exits with
// 128 + number.
class Interrupted : public std::runtime_error {
 public:
  Interrupted(int number, const std::string& where);  // "at step 3 of 9; ..."
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace frugal::apps
