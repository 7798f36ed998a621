#include "compress/quantize/nonfinite_count.h"

#ifndef FRUGAL_CUDA

namespace frugal::compress {

NonfiniteCount::~NonfiniteCount() = default;
int64_t NonfiniteCount::value() const { return here_.load(std::memory_order_relaxed); }

}  // namespace frugal::compress

#endif
