// Where the samples of a region lie along one axis, shared by the CPU and the CUDA kernels. A
// cell's mean is a product of two axes: y = sum over h and w of weight(h) weight(w) x[h, w].
// Internal.
#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace frugal::ops::boxes {

// The two pixels between which a sample lies, and their weights; both 0 outside the map.
template <class T>
struct RoiTap {
  int64_t low = 0, high = 0;
  T low_weight = 0, high_weight = 0;
};

// One axis of a region: `cells` cells of `samples` samples each, on a map of `extent` pixels.
template <class T>
struct RoiAxis {
  int64_t extent, cells, samples;
  T start, step;  // where the region begins, and from cell to cell, in pixels

  FRUGAL_HD static RoiAxis of(T from, T to, T scale, int64_t extent, int64_t cells, int samples,
                              bool aligned) {
    const T offset = aligned ? T(0.5) : T(0);
    const T start = from * scale - offset;
    T size = to * scale - offset - start;
    if (!aligned && size < 1) size = 1;
    const T step = size / T(cells);
    int64_t number = samples;
    if (samples <= 0) {  // rounded up
      number = static_cast<int64_t>(step);
      if (T(number) < step) ++number;
    }
    return {extent, cells, number, start, step};
  }
  FRUGAL_HD RoiTap<T> tap(int64_t cell, int64_t sample) const {
    T at = start + T(cell) * step + (T(sample) + T(0.5)) * step / T(samples);
    if (at < -1 || at > T(extent)) return {};
    if (!(at > 0)) at = 0;
    auto low = static_cast<int64_t>(at);
    if (low >= extent - 1) return {extent - 1, extent - 1, T(1), T(0)};
    const T share = at - T(low);
    return {low, low + 1, 1 - share, share};
  }
  // The weight of pixel `at` in all samples of a cell together.
  FRUGAL_HD T weight(int64_t cell, int64_t at) const {
    T sum = 0;
    for (int64_t i = 0; i < samples; ++i) {
      const RoiTap<T> t = tap(cell, i);
      if (t.low == at) sum += t.low_weight;
      if (t.high == at && t.high != t.low) sum += t.high_weight;
    }
    return sum;
  }
  // Pixels outside [least, most] belong to no cell.
  FRUGAL_HD bool reaches(int64_t at) const {
    const T least = start - 1, most = start + T(cells) * step + 1;
    // A sample before the first pixel, or behind the last one, belongs to that pixel.
    const bool low_edge = at == 0, high_edge = at == extent - 1;
    return (T(at) >= least || high_edge) && (T(at) <= most || low_edge);
  }
};

template <class T>
FRUGAL_HD T sample_share(int64_t rows, int64_t columns) {
  const int64_t count = rows * columns;
  return T(1) / T(count < 1 ? 1 : count);
}

}  // namespace frugal::ops::boxes
