#include "ops/detection/match.h"

#include "core/cuda/cuda_kernel.h"
#include "ops/detection/box_kernels.h"

namespace frugal::ops {
namespace {

constexpr int kThreads = 256;

// best[t]: the highest overlap of box t with an anchor. A block has a box.
__global__ void best_overlaps(int64_t objects, int64_t anchors, const float* box,
                              const float* anchor, float* best) {
  for (int64_t t = blockIdx.x; t < objects; t += gridDim.x) {
    float most = 0;
    for (int64_t a = threadIdx.x; a < anchors; a += blockDim.x) {
      const float overlap = boxes::iou(box + 4 * t, anchor + 4 * a);
      most = most < overlap ? overlap : most;
    }
    most = cuda::across_block(most, 0.0f, cuda::Max<float>{});
    if (threadIdx.x == 0) best[t] = most;
  }
}

struct Match {
  int64_t each, objects;
  float low, high;
  bool low_quality;
  const int64_t* counts;
  const float *box, *anchor, *best;
  int64_t* y;
  __device__ void operator()(int64_t i) const {
    int64_t first = 0;
    for (int64_t n = 0; n < i / each; ++n) first += counts[n];
    int64_t match = kBackground;
    float most = -1;
    bool keep = false;
    // The host did not look at the counts.
    const int64_t stop = first + counts[i / each], end = stop < objects ? stop : objects;
    for (int64_t t = first < 0 ? 0 : first; t < end; ++t) {
      const float overlap = boxes::iou(box + 4 * t, anchor + i % each * 4);
      if (overlap > most) {
        most = overlap;
        match = t;
      }
      keep = keep || (low_quality && overlap == best[t]);
    }
    if (match >= 0 && !keep && !(most >= high)) match = most < low ? kBackground : kBetween;
    y[i] = match;
  }
};

struct EncodeMatch {
  int64_t each;
  boxes::Weights weights;
  const int64_t* match;
  const float *box, *anchor;
  float* y;
  __device__ void operator()(int64_t i) const {
    if (match[i] >= 0)
      boxes::encode(box + 4 * match[i], anchor + i % each * 4, weights, y + 4 * i);
    else
      for (int k = 0; k < 4; ++k) y[4 * i + k] = 0;
  }
};

// A block has a picture. It counts the matches first.
__global__ void focal_targets_of(int64_t pictures, int64_t each, const int64_t* match,
                                 const int64_t* label, int64_t* classes, float* class_weight,
                                 float* box_weight) {
  for (int64_t n = blockIdx.x; n < pictures; n += gridDim.x) {
    int64_t positive = 0;
    for (int64_t i = threadIdx.x; i < each; i += blockDim.x) positive += match[n * each + i] >= 0;
    positive = cuda::block_sum(static_cast<int>(positive));
    const float share = 1.0f / static_cast<float>((positive < 1 ? 1 : positive) * pictures);
    for (int64_t i = n * each + threadIdx.x; i < (n + 1) * each; i += blockDim.x) {
      classes[i] = match[i] >= 0 ? label[match[i]] : -1;
      class_weight[i] = match[i] == kBetween ? 0 : share;
      box_weight[i] = match[i] >= 0 ? share : 0;
    }
  }
}

}  // namespace

void match_boxes_kernel(Cuda, const Tensor& boxes, const Tensor& counts, const Tensor& anchors,
                        const MatchOptions& options, const Tensor& best, const Tensor& y) {
  if (options.low_quality && boxes.size(0) > 0)
    cuda::launch(best_overlaps, {cuda::blocks_for(boxes.size(0), 1), kThreads}, boxes.size(0),
                 anchors.size(0), boxes.data<float>(), anchors.data<float>(), best.mut<float>());
  cuda::for_each(y.numel(), Match{y.size(1), boxes.size(0), static_cast<float>(options.low),
                                  static_cast<float>(options.high), options.low_quality,
                                  counts.data<int64_t>(), boxes.data<float>(),
                                  anchors.data<float>(), best.data<float>(), y.mut<int64_t>()});
}

void encode_matches_kernel(Cuda, const Tensor& matches, const Tensor& boxes, const Tensor& anchors,
                           const BoxCoding& coding, const Tensor& y) {
  cuda::for_each(matches.numel(),
                 EncodeMatch{matches.size(1), boxes::weights_of(coding), matches.data<int64_t>(),
                             boxes.data<float>(), anchors.data<float>(), y.mut<float>()});
}

void focal_targets_kernel(Cuda, const Tensor& matches, const Tensor& labels,
                          const FocalTargets& targets) {
  if (matches.numel() == 0) return;
  cuda::launch(focal_targets_of, {cuda::blocks_for(matches.size(0), 1), kThreads}, matches.size(0),
               matches.size(1), matches.data<int64_t>(), labels.data<int64_t>(),
               targets.classes.mut<int64_t>(), targets.class_weight.mut<float>(),
               targets.box_weight.mut<float>());
}

}  // namespace frugal::ops
