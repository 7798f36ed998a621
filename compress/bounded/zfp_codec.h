// zfp in its fixed-accuracy mode: blocks of neighbours are transformed together, and as many bit
// planes are kept as the bound needs. Neighbours are pixels of one channel (the rows of a batch of
// images lie below one another), or rows of one column. Rounding is neither nearest nor unbiased.
//
// Payload, u8: the end (int64) and the mode (u8) of each stream, then the streams. There is one
// stream for each channel and each chunk of at least 4096 of its elements.
// Ref: Lindstrom 2014, "Fixed-rate compressed floating-point arrays"; https://zfp.llnl.gov.
#pragma once
#include "compress/bounded/error_bounded.h"

namespace frugal::compress {

bool has_zfp();  // whether it was built with the library
// Errors: it was not built with the library.
std::unique_ptr<ErrorBounded> make_zfp(const ErrorBoundedOptions& options = {});  // min_bits counts

}  // namespace frugal::compress
