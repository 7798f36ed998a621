// Counts what NVIDIA's libraries did not take, so that slower kernels computed it. Thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace frugal::ops {

struct LibraryFallback {
  std::string what;     // library, op, dtype and shapes
  std::string instead;  // what computed it
  int64_t count = 0;
};

// Counts one more. The first one of each `what` is logged as a warning.
void note_fallback(const std::string& what, const std::string& instead);

// What was noted since the process began or forget_fallbacks() was called, the most frequent first.
// Work that is captured (CUDA graphs) counts once, when it is captured.
std::vector<LibraryFallback> library_fallbacks();
void forget_fallbacks();

}  // namespace frugal::ops
