// The table of codecs. Tests, the benchmark and the command line walk it; a new codec is a row.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/saved_tensor.h"

namespace frugal::compress {

struct CodecRow {
  std::string name;  // "identity", "q4", "q4-nearest", "q4-row", "q4-row-dithered"
  double bits = 0;   // per element, without metadata; 0: those of the dtype
  bool lossless = false;
  bool unbiased = false;      // E[unpacked] = packed, over seeds
  bool shares_lanes = false;  // groups run along the last axis
  bool dithered = false;      // unbiased by subtractive dither
  // The largest |x^ - x| of an element of a group with this minimum and maximum.
  double (*bound)(double min, double max, double bits) = nullptr;
  std::unique_ptr<Codec> (*make)(const CodecRow& row, uint64_t seed) = nullptr;
};

const std::vector<CodecRow>& codec_table();
const CodecRow& find_codec(std::string_view name);  // Errors: unknown name, listing the forms

}  // namespace frugal::compress
