// FRUGAL_INDEPENDENT stands before a loop whose output may be one of its inputs: no iteration reads
// what another one writes.
#pragma once

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // loops that call log stay as they are
#define FRUGAL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FRUGAL_INDEPENDENT _Pragma("GCC ivdep")
#endif
