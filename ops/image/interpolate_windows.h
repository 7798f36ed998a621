// Which positions of an axis an interpolated position is made of, written once for every backend.
// Internal to ops/image/interpolate.
#pragma once
#include "core/host_device.h"
#include "ops/options.h"

namespace frugal::ops {

// value = (1 - share) * x[low] + share * x[high]
struct Tap {
  int64_t low, high;
  double share;
};

// One axis: `extent` positions become `outputs`.
struct TapAxis {
  int64_t extent, outputs;
  bool bilinear, align_corners;

  FRUGAL_HD Tap tap(int64_t output) const {
    // Whole numbers, so that no rounding picks a neighbour.
    const int64_t nearest = output * extent / outputs;
    if (!bilinear) return {nearest, nearest, 0};
    double at = 0;
    if (align_corners)
      at = outputs > 1
               ? static_cast<double>(output * (extent - 1)) / static_cast<double>(outputs - 1)
               : 0;
    else
      at = (static_cast<double>(2 * output + 1) * static_cast<double>(extent) /
                static_cast<double>(outputs) -
            1) /
           2;
    if (at < 0) at = 0;  // as if the border went on
    auto low = static_cast<int64_t>(at);
    if (low > extent - 1) low = extent - 1;
    const int64_t high = low + 1 < extent ? low + 1 : low;
    return {low, high, high == low ? 0 : at - static_cast<double>(low)};
  }
  // What `output` takes of x[position].
  FRUGAL_HD double weight(int64_t output, int64_t position) const {
    const Tap t = tap(output);
    return (t.low == position ? 1 - t.share : 0) + (t.high == position ? t.share : 0);
  }
  // No output before this one, and none from end_of() on, takes anything of x[position].
  FRUGAL_HD int64_t begin_of(int64_t position) const {
    return position == 0 ? 0 : bounded(position - 2);
  }
  FRUGAL_HD int64_t end_of(int64_t position) const {
    return position == extent - 1 ? outputs : bounded(position + 2) + 1;
  }

 private:
  // The output at `position`, which may lie outside, rounded down.
  FRUGAL_HD int64_t bounded(int64_t position) const {
    if (position < 0) return 0;
    const int64_t output = align_corners && bilinear
                               ? (extent > 1 ? position * (outputs - 1) / (extent - 1) : outputs)
                               : position * outputs / extent;
    return output < outputs ? output : outputs - 1;
  }
};

}  // namespace frugal::ops
