// How tensors are quantized in groups (quantize.h).
#pragma once
#include <cstdint>

namespace frugal::compress {

enum class Rounding : uint8_t { stochastic, nearest, dithered };

// nchw: the column axis for images, [N, H, W, C], and the row axis for all others. These are about
// the groups of a framework that keeps images as [N, C, H, W] and groups neighbours in memory.
enum class GroupAxis : uint8_t { column, row, nchw };

struct QuantizeOptions {
  int bits = 4;                        // 1..16
  int64_t group = 256;                 // elements per group: a multiple of 8 in 8..65536
  GroupAxis axis = GroupAxis::column;  // see GroupAxis
  Rounding rounding = Rounding::stochastic;
  uint64_t seed = 0;  // with SaveInfo's step and seq: the random stream
};

}  // namespace frugal::compress
