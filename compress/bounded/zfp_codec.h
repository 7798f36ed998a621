// zfp in its fixed-accuracy mode: blocks of neighbours are transformed together, and as many bit
// planes kept as the bound asks for. Neighbours are pixels of one channel (image rows of a batch
// below each other), or rows of one column. Rounding is neither nearest nor unbiased.
//
// Payload, u8: the end (int64) and the mode (u8) of each stream, the streams. There is one for each
// channel and chunk of at least 4096 of its elements.
// Ref: Lindstrom 2014, "Fixed-rate compressed floating-point arrays"; https://zfp.llnl.gov.
#pragma once
#include "compress/bounded/error_bounded.h"

namespace frugal::compress {

bool has_zfp();  // built with the library?
// Errors: not built with it.
std::unique_ptr<ErrorBounded> make_zfp(const ErrorBoundedOptions& options = {});  // min_bits counts

}  // namespace frugal::compress
