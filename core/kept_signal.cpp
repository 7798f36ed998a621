#include "core/kept_signal.h"

#include <pthread.h>

#include "core/each_thread.h"

namespace frugal {
KeptSignal::KeptSignal(int number, Delivery delivery) : number_(number) {
  sigaction(number, nullptr, &handled_);
  if (delivery == Delivery::now) return;
  const int threads = threads_here();
  blocked_.resize(static_cast<size_t>(threads));
  on_each_thread(threads, [&](int thread) {
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, number_);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    blocked_[static_cast<size_t>(thread)] = sigismember(&before, number_) == 1 ? 1 : 0;
  });
}

KeptSignal::~KeptSignal() {
  sigaction(number_, &handled_, nullptr);
  if (blocked_.empty()) return;
  on_each_thread(static_cast<int>(blocked_.size()), [&](int thread) {
    if (blocked_[static_cast<size_t>(thread)] != 0) return;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number_);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  });
}

}  // namespace frugal
