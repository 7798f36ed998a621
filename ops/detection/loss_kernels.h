// Loss and slope of one element or box, shared by the CPU and the CUDA kernels. Internal.
#pragma once
#include <cmath>

#include "core/host_device.h"
#include "ops/detection/box_kernels.h"
#include "ops/options.h"

namespace frugal::ops::boxes {

// The loss of a logit x. `slope` becomes d(loss)/dx.
template <class T>
FRUGAL_HD T focal(T x, bool yes, T alpha, T gamma, T& slope) {
  const T z = yes ? x : -x;
  const T factor = alpha < 0 ? T{1} : yes ? alpha : 1 - alpha;
  const T small = T(std::exp(-std::fabs(z)));  // in (0, 1]: never overflows
  const T right = z >= 0 ? 1 / (1 + small) : small / (1 + small);
  const T wrong = z >= 0 ? small / (1 + small) : 1 / (1 + small);  // 1 - right, without rounding
  const T entropy = T(std::log1p(small)) + (z < 0 ? -z : T{0});    // -log(right)
  const T scale = factor * (gamma == 0   ? T{1}
                            : gamma == 2 ? wrong * wrong
                                         : T(std::pow(wrong, gamma)));
  slope = -scale * (gamma * right * entropy + wrong);
  if (!yes) slope = -slope;
  return scale * entropy;
}

// The smooth L1 loss of a difference.
template <class T>
FRUGAL_HD T smooth_l1(T difference, T beta, T& slope) {
  const T size = T(std::fabs(difference));
  if (size < beta) {
    slope = difference / beta;
    return difference * slope / 2;
  }
  slope = difference > 0 ? T{1} : difference < 0 ? T{-1} : T{0};
  return size - beta / 2;
}

// The share of d max(a, b) that belongs to a; d min(a, b) has the share of the negated numbers.
template <class T>
FRUGAL_HD T share_of_most(T a, T b) {
  return a > b ? T{1} : a < b ? T{0} : T(0.5);
}

// 1 - GIoU of box x and target t. slope[k] becomes d(loss)/dx[k].
template <class T>
FRUGAL_HD T giou_loss(const T* x, const T* t, T* slope) {
  const T eps = T(1e-7);
  const T left = most(x[0], t[0]), top = most(x[1], t[1]);
  const T right = least(x[2], t[2]), bottom = least(x[3], t[3]);
  const bool overlap = bottom > top && right > left;
  const T inside = overlap ? (right - left) * (bottom - top) : T{0};
  const T width = x[2] - x[0], height = x[3] - x[1];
  const T together = width * height + area(t) - inside;
  const T hull_width = most(x[2], t[2]) - least(x[0], t[0]);
  const T hull_height = most(x[3], t[3]) - least(x[1], t[1]);
  const T hull = hull_width * hull_height;
  const T iou = inside / (together + eps);
  // loss = 1 - inside / (together + eps) + (hull - together) / (hull + eps)
  const T by_together = inside / ((together + eps) * (together + eps)) - 1 / (hull + eps);
  const T by_inside = -1 / (together + eps) - by_together;  // together contains -inside
  const T by_hull = (together + eps) / ((hull + eps) * (hull + eps));
  for (int k = 0; k < 4; ++k) {
    const bool second = k >= 2;  // x2 and y2 grow the box, x1 and y1 shrink it
    const T sign = second ? T{1} : T{-1};
    const T across = k % 2 == 0 ? height : width;
    const T most_share = share_of_most(x[k], t[k]);
    const T inner = second ? 1 - most_share : most_share;  // share that moves the overlap's edge
    const T inner_across = k % 2 == 0 ? bottom - top : right - left;
    const T hull_across = k % 2 == 0 ? hull_height : hull_width;
    slope[k] = sign * (by_together * across + (overlap ? by_inside * inner * inner_across : T{0}) +
                       by_hull * (1 - inner) * hull_across);
  }
  return 1 - iou + (hull - together) / (hull + eps);
}

// 1 - GIoU of the box that `code` says, seen from `reference`, and of `target`. slope[k] becomes
// d(loss)/d(code[k]); a size beyond the limit of decode() does not depend on its code.
template <class T>
FRUGAL_HD T coded_giou_loss(const T* code, const T* reference, const T* target,
                            const Weights& weights, T* slope) {
  T box[4], by_box[4];
  decode(code, reference, weights, box);
  const T loss = giou_loss(box, target, by_box);
  const T factors[4] = {T(weights.x), T(weights.y), T(weights.width), T(weights.height)};
  for (int axis = 0; axis < 2; ++axis) {
    const T extent = reference[axis + 2] - reference[axis];
    slope[axis] = (by_box[axis] + by_box[axis + 2]) * extent / factors[axis];
    const T log_scale = code[axis + 2] / factors[axis + 2];
    const T half = T(0.5) * (box[axis + 2] - box[axis]);
    slope[axis + 2] = log_scale > T(kMostLogScale)
                          ? T{0}
                          : (by_box[axis + 2] - by_box[axis]) * half / factors[axis + 2];
  }
  return loss;
}

}  // namespace frugal::ops::boxes
