// Where the windows of pooling lie, written once for every backend. Internal to ops/image/pool2d.
#pragma once
#include "core/host_device.h"
#include "ops/image/pool2d.h"

namespace frugal::ops {

struct Span {
  int64_t begin, end;
};

// The extents of images [N, h, w, c] and of what is pooled from them, [N, out_h, out_w, c].
struct PoolExtents {
  int64_t h, w, out_h, out_w, c;
};
inline PoolExtents pool_extents(const Shape& x, const Shape& y) {
  return {x[1], x[2], y[1], y[2], x[3]};
}

FRUGAL_HD int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
FRUGAL_HD int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

// The part of the window of output `o` that lies inside an image axis of `extent`, and the first
// position of the window.
struct WindowSpan {
  int64_t first;
  Span inside;
};
FRUGAL_HD WindowSpan window(int64_t o, int64_t extent, int64_t kernel, int64_t stride,
                            int64_t padding) {
  const int64_t first = o * stride - padding;
  return {first, {most_of(first, 0), least_of(first + kernel, extent)}};
}

// The outputs, of `outputs` in all, whose windows hold position `at` of an axis.
FRUGAL_HD Span windows_at(int64_t at, int64_t outputs, int64_t kernel, int64_t stride,
                          int64_t padding) {
  const int64_t shifted = at + padding;
  const int64_t before = most_of(shifted - kernel + 1, 0);  // windows that end before begin at a
                                                            // lower position
  return {(before + stride - 1) / stride, least_of(shifted / stride + 1, outputs)};
}

// For adaptive pooling: the window of output o along an axis, and the outputs whose windows hold
// position `at`.
FRUGAL_HD Span adaptive_window(int64_t o, int64_t extent, int64_t outputs) {
  return {o * extent / outputs, ((o + 1) * extent + outputs - 1) / outputs};
}
FRUGAL_HD Span adaptive_windows_at(int64_t at, int64_t extent, int64_t outputs) {
  return {at * outputs / extent, ((at + 1) * outputs + extent - 1) / extent};
}

// The window of output (oh, ow) in an image [h, w], and the number by which its sum is divided.
struct MeanWindow {
  Span h, w;
  double area;
};
FRUGAL_HD MeanWindow mean_window(const Windows& v, int64_t height, int64_t width, int64_t oh,
                                 int64_t ow) {
  if (v.adaptive) {
    const Span h = adaptive_window(oh, height, v.out_h), w = adaptive_window(ow, width, v.out_w);
    return {h, w, static_cast<double>((h.end - h.begin) * (w.end - w.begin))};
  }
  const Pool2dOptions& o = v.options;
  const WindowSpan h = window(oh, height, o.kernel[0], o.stride[0], o.padding[0]);
  const WindowSpan w = window(ow, width, o.kernel[1], o.stride[1], o.padding[1]);
  int64_t area = (h.inside.end - h.inside.begin) * (w.inside.end - w.inside.begin);
  if (o.count_include_pad) {
    // A window may reach beyond the padding. Only cells of the image and of the padding count.
    const int64_t rows = least_of(h.first + o.kernel[0], height + o.padding[0]) - h.first;
    const int64_t cols = least_of(w.first + o.kernel[1], width + o.padding[1]) - w.first;
    area = rows * cols;
  }
  return {h.inside, w.inside, static_cast<double>(area)};
}

// The type that numbers the positions of windows of up to `cells`.
inline DType window_index_dtype(int64_t cells) { return cells <= 256 ? DType::u8 : DType::i32; }

// Calls f with a value of the type that numbers the positions of a window: u8 or i32.
template <class F>
void with_window_index(const Tensor& index, F f) {
  if (index.dtype() == DType::u8) return f(uint8_t{});
  f(int32_t{});
}

}  // namespace frugal::ops
