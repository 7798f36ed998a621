// Arithmetic of boxes [x1, y1, x2, y2], in pixels, shared by the CPU and the CUDA kernels of
// ops/detection. Internal.
#pragma once
#include <algorithm>
#include <cmath>

#include "core/host_device.h"
#include "ops/options.h"

namespace frugal::ops::boxes {

// The product, which no compiler joins with a sum. Two kernels that compute the overlap of the same
// boxes must get the same bits, because the matcher compares them.
FRUGAL_HD float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
FRUGAL_HD double product(double a, double b) { return a * b; }

template <class T>
FRUGAL_HD T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
FRUGAL_HD T most(T a, T b) {
  return a < b ? b : a;
}

template <class T>
FRUGAL_HD T area(const T* box) {
  return product(box[2] - box[0], box[3] - box[1]);
}

// The area that two boxes share.
template <class T>
FRUGAL_HD T intersection(const T* a, const T* b) {
  const T width = least(a[2], b[2]) - most(a[0], b[0]);
  const T height = least(a[3], b[3]) - most(a[1], b[1]);
  return product(most(width, T{0}), most(height, T{0}));
}

// Intersection over union; NaN where both areas are 0, as in torchvision.
template <class T>
FRUGAL_HD T iou(const T* a, const T* b) {
  const T shared = intersection(a, b);
  return shared / (area(a) + area(b) - shared);
}

// Ref: Rezatofighi et al. 2019, algorithm 1.
template <class T>
FRUGAL_HD T giou(const T* a, const T* b) {
  const T shared = intersection(a, b), together = area(a) + area(b) - shared;
  const T width = most(a[2], b[2]) - least(a[0], b[0]);
  const T height = most(a[3], b[3]) - least(a[1], b[1]);
  const T hull = product(most(width, T{0}), most(height, T{0}));
  return shared / together - (hull - together) / hull;
}

// What the differences between boxes are multiplied by.
struct Weights {
  double x = 1, y = 1, width = 1, height = 1;
};
inline Weights weights_of(const BoxCoding& coding) {
  return {coding.x, coding.y, coding.width, coding.height};
}

// Widths and heights grow by exp(4.135...) = 1000 / 16 at most.
inline constexpr double kMostLogScale = 4.135166556742356;

// `box` as seen from `reference`.
template <class T>
FRUGAL_HD void encode(const T* box, const T* reference, const Weights& weights, T* out) {
  const T width = reference[2] - reference[0], height = reference[3] - reference[1];
  const T x = reference[0] + T(0.5) * width, y = reference[1] + T(0.5) * height;
  const T box_width = box[2] - box[0], box_height = box[3] - box[1];
  const T box_x = box[0] + T(0.5) * box_width, box_y = box[1] + T(0.5) * box_height;
  out[0] = T(weights.x) * (box_x - x) / width;
  out[1] = T(weights.y) * (box_y - y) / height;
  out[2] = T(weights.width) * T(std::log(box_width / width));
  out[3] = T(weights.height) * T(std::log(box_height / height));
}

template <class T>
FRUGAL_HD void decode(const T* delta, const T* reference, const Weights& weights, T* out) {
  const T width = reference[2] - reference[0], height = reference[3] - reference[1];
  const T x = reference[0] + T(0.5) * width, y = reference[1] + T(0.5) * height;
  const T dx = delta[0] / T(weights.x), dy = delta[1] / T(weights.y);
  const T dw = least(delta[2] / T(weights.width), T(kMostLogScale));
  const T dh = least(delta[3] / T(weights.height), T(kMostLogScale));
  const T out_x = dx * width + x, out_y = dy * height + y;
  const T half_width = T(0.5) * T(std::exp(dw)) * width;
  const T half_height = T(0.5) * T(std::exp(dh)) * height;
  out[0] = out_x - half_width;
  out[1] = out_y - half_height;
  out[2] = out_x + half_width;
  out[3] = out_y + half_height;
}

}  // namespace frugal::ops::boxes
