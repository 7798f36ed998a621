// Which object an anchor stands for, and what a network is to say there. Beside the graph.
// Ref: torchvision's Matcher, RetinaNet and BoxCoder; Ren et al. 2015; Lin et al. 2017.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

inline constexpr int64_t kBackground = -1;  // an anchor that covers no object
inline constexpr int64_t kBetween = -2;     // an anchor that counts neither as one nor as the other

// The objects of N pictures lie behind each other: boxes [T, 4], counts [N] i64 with sum T.
// anchors [A, 4] are those of each picture -> [N, A] i64: the row of the box that overlaps the
// anchor most (the first of equal ones) where they overlap by at least options.high, else
// kBackground below options.low and kBetween. With low_quality, an anchor that no other anchor
// surpasses for some box keeps its own best box, however little the two overlap. A picture
// without objects has background only.
// Errors: other shapes and dtypes; counts of another sum (CUDA does not wait to check this, and
// reads no box beyond the last); low above high.
Tensor match_boxes(const Tensor& boxes, const Tensor& counts, const Tensor& anchors,
                   const MatchOptions& options);
// best [T] is workspace.
void match_boxes_kernel(Cpu, const Tensor& boxes, const Tensor& counts, const Tensor& anchors,
                        const MatchOptions& options, const Tensor& best, const Tensor& y);
void match_boxes_kernel(Cuda, const Tensor& boxes, const Tensor& counts, const Tensor& anchors,
                        const MatchOptions& options, const Tensor& best, const Tensor& y);

// matches [N, A] of match_boxes() -> [N, A, 4]: the matched box as seen from its anchor, see
// encode_boxes(); 0 where there is none.  Errors: other shapes and dtypes.
Tensor encode_matches(const Tensor& matches, const Tensor& boxes, const Tensor& anchors,
                      const BoxCoding& coding);
void encode_matches_kernel(Cpu, const Tensor& matches, const Tensor& boxes, const Tensor& anchors,
                           const BoxCoding& coding, const Tensor& y);
void encode_matches_kernel(Cuda, const Tensor& matches, const Tensor& boxes, const Tensor& anchors,
                           const BoxCoding& coding, const Tensor& y);

// What the losses of RetinaNet need. A picture counts 1 / N, divided by its matched anchors (at
// least 1).
struct FocalTargets {
  Tensor classes;       // [N * A] i64: the label of the match, else -1
  Tensor class_weight;  // [N * A] f32 (f64 with f64 boxes): 0 for kBetween
  Tensor box_weight;    // [N * A] the same: 0 where there is no match
};
// labels [T] i64.  Errors: other shapes and dtypes.
FocalTargets focal_targets(const Tensor& matches, const Tensor& labels, DType dtype);
void focal_targets_kernel(Cpu, const Tensor& matches, const Tensor& labels,
                          const FocalTargets& targets);
void focal_targets_kernel(Cuda, const Tensor& matches, const Tensor& labels,
                          const FocalTargets& targets);

}  // namespace frugal::ops
