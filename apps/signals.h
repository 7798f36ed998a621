// SIGINT and SIGTERM ask the run to stop at the next step; a second one ends the process at once.
#pragma once
#include <stdexcept>

namespace frugal::apps {

void catch_signals();
int signal_received();  // its number, or 0

// Carries the signal out of the loop once the checkpoint is written: the binary exits with
// 128 + number.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(int number);
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace frugal::apps
