// The table of codecs. The tests walk over it, so a codec with a row here is tested. A new codec is
// a new row.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/saved_tensor.h"

namespace frugal::compress {

struct CodecRow {
  std::string name;  // "identity", "q4", "q4-nearest", "q4-row", "q4-row-dithered"
  double bits = 0;   // bits per element, without metadata; 0: as many as the dtype has
  bool lossless = false;
  bool unbiased = false;      // the mean of unpacked values over seeds is the packed value
  bool shares_lanes = false;  // groups run along the last axis
  bool dithered = false;      // unbiased because dither is taken away after unpacking
  // The largest |x^ - x| of an element in a group with this minimum and maximum.
  double (*bound)(double min, double max, double bits) = nullptr;
  std::unique_ptr<Codec> (*make)(const CodecRow& row, uint64_t seed) = nullptr;
};

const std::vector<CodecRow>& codec_table();
const CodecRow& find_codec(std::string_view name);  // Errors: an unknown name; the message lists
                                                    // the forms of names

}  // namespace frugal::compress
