// The threads that parallel_for() works on, one by one. Internal to core.
#pragma once
#include <functional>

namespace frugal {

// How many threads parallel_for() would use here: 1 inside of it.
int threads_here();
// Calls f(0) to f(threads - 1), each on a thread of its own; f(0) runs on this one.
void on_each_thread(int threads, const std::function<void(int)>& f);

}  // namespace frugal
