// KeptSignal: a signal whose handling a library changes for a while.
#pragma once
#include <csignal>
#include <cstdint>
#include <vector>

namespace frugal {

// While it lives, a signal that is sent to the process waits; then it is handled as before,
// whatever a library made of its handler. So a library that takes SIGTERM for an error of its own
// never sees one. The threads that wait are this one and those of parallel_for(). Thread safety:
// one at a time.
class KeptSignal {
 public:
  // now: the signal does not wait, and only its handling is put back.
  enum class Delivery : uint8_t { later, now };
  explicit KeptSignal(int number, Delivery delivery = Delivery::later);
  ~KeptSignal();
  KeptSignal(const KeptSignal&) = delete;
  KeptSignal& operator=(const KeptSignal&) = delete;

 private:
  int number_;
  struct sigaction handled_ {};
  std::vector<char> blocked_;  // by thread: did it wait before?
};

}  // namespace frugal
