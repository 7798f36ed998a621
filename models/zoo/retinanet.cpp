#include "models/zoo/retinanet.h"

#include <cmath>

#include "autograd/detection_functions.h"
#include "autograd/operators.h"
#include "models/detection/found.h"
#include "ops/dense/copy.h"
#include "ops/detection/match.h"

namespace frugal::models {
namespace {

constexpr int64_t kLevels = 5, kConvolutions = 4;
constexpr double kPrior = 0.01;  // the probability of an object at first

}  // namespace

RetinaNet::RetinaNet(Init& init, const RetinaNetOptions& options)
    : options_(options), anchors_(three_sides(options.anchor_side, kLevels)) {
  FRUGAL_CHECK(options.num_classes >= 1 && options.anchor_side >= 1,
               "[retinanet] expected at least 1 class and anchors of at least 1 pixel, got {} and "
               "{}",
               options.num_classes, options.anchor_side);
  PyramidOptions pyramid;
  pyramid.trunk = options.trunk;
  pyramid.width = options.width;
  pyramid.in_channels = options.in_channels;
  backbone_ = register_module("backbone", std::make_shared<Pyramid>(init, pyramid));
  const int64_t each = anchors_[0].each();
  classification_ = make_head(init, "head.classification_head", "cls_logits",
                              each * options.num_classes, -std::log((1 - kPrior) / kPrior));
  regression_ = make_head(init, "head.regression_head", "bbox_reg", each * 4, 0);
}

RetinaNet::Head RetinaNet::make_head(Init& init, const std::string& name, const std::string& last,
                                     int64_t outputs, double bias) {
  Head head;
  for (int64_t i = 0; i < kConvolutions; ++i)
    head.convolutions.push_back(
        register_module(fmt::format("{}.conv.{}.0", name, i),
                        normal_conv(init, options_.width, options_.width, 3)));
  head.last = register_module(fmt::format("{}.{}", name, last),
                              normal_conv(init, options_.width, outputs, 3, 0.01, bias));
  return head;
}

Variable RetinaNet::Head::forward(Variable x, Context& context) const {
  for (const auto& convolution : convolutions)
    x = relu(convolution->forward(std::move(x), context));
  return last->forward(std::move(x), context);
}

std::vector<RetinaNet::Outputs> RetinaNet::outputs(Variable x, Context& context,
                                                   std::vector<GridSize>& grids) {
  Variables levels = backbone_->levels(std::move(x), context);
  std::vector<Outputs> all;
  for (Variable& level : levels) {
    grids.push_back({level.size(1), level.size(2)});
    const int64_t n = level.size(0);
    // Channels of a pixel are its anchors, one behind the other.
    Variable logits = classification_.forward(level, context);
    Variable codes = regression_.forward(std::move(level), context);
    all.push_back({reshape(logits, {n, -1, options_.num_classes}), reshape(codes, {n, -1, 4})});
  }
  return all;
}

Variable RetinaNet::forward(Variable x, Context& context) {
  std::vector<GridSize> grids;
  Variables parts;
  for (const Outputs& level : outputs(std::move(x), context, grids))
    parts.push_back(concat({level.logits, level.codes}, -1));
  return concat(parts, 1);
}

NamedVariables RetinaNet::losses(Variable images, const DetectionTargets& targets, Context& context,
                                 Search* search) {
  const int64_t height = images.size(1), width = images.size(2), n = images.size(0);
  std::vector<GridSize> grids;
  const std::vector<Outputs> levels = outputs(std::move(images), context, grids);
  const Device device = levels[0].logits.device();
  const DType dtype =
      levels[0].logits.dtype() == DType::f64 ? DType::f64 : DType::f32;  // of boxes and weights
  const Tensor all_anchors = make_anchors(anchors_, grids, height, width);
  if (search != nullptr) search->found = found_in(levels, all_anchors, search->sizes);
  ops::FocalTargets wanted;
  Tensor codes;
  {
    const CategoryScope scope(Category::workspace);
    const Tensor anchors = ops::cast(to_device(all_anchors, device), dtype);
    const Tensor boxes = ops::cast(targets.boxes, dtype);
    const Tensor matches = ops::match_boxes(boxes, targets.counts, anchors, MatchOptions{});
    codes = ops::encode_matches(matches, boxes, anchors, BoxCoding{});
    wanted = ops::focal_targets(matches, targets.labels, dtype);
  }
  // The losses of the levels are added, so no tensor holds all levels.
  Variable classification, regression;
  int64_t begin = 0;
  for (const Outputs& level : levels) {
    const int64_t end = begin + level.logits.size(1);
    const auto part = [&](const Tensor& x) {
      const CategoryScope scope(Category::workspace);
      return ops::contiguous(x.view({n, -1}).slice(1, begin, end)).view({-1});
    };
    const Variable by_class = sigmoid_focal_loss(reshape(level.logits, {-1, options_.num_classes}),
                                                 part(wanted.classes), part(wanted.class_weight));
    Tensor to;
    {
      const CategoryScope scope(Category::workspace);
      to =
          ops::cast(ops::contiguous(codes.slice(1, begin, end)).view({-1, 4}), level.codes.dtype());
    }
    const Variable by_box =
        smooth_l1_loss(reshape(level.codes, {-1, 4}), to, part(wanted.box_weight), 0);
    classification = classification.defined() ? classification + by_class : by_class;
    regression = regression.defined() ? regression + by_box : by_box;
    begin = end;
  }
  return {{"classification", classification}, {"bbox_regression", regression}};
}

std::vector<Detections> RetinaNet::found_in(const std::vector<Outputs>& levels,
                                            const Tensor& anchors, const Tensor& sizes) const {
  if (levels[0].logits.device() == kMeta) return {};
  const int64_t n = levels[0].logits.size(0);
  const CategoryScope scope(Category::workspace);
  const auto on_host = [](const Variable& x) {
    return to_device(ops::cast(ops::contiguous(x.value()), DType::f32), kCpu);
  };
  const Tensor extents = to_device(sizes, kCpu);
  std::vector<Candidates> found(static_cast<size_t>(n));
  int64_t begin = 0;
  for (const Outputs& level : levels) {
    const Tensor logits = on_host(level.logits), codes = on_host(level.codes);
    const int64_t each = logits.size(1);
    const Tensor own = anchors.slice(0, begin, begin + each);
    for (int64_t i = 0; i < n; ++i)
      found[static_cast<size_t>(i)].add_best(logits[i], codes[i], own, options_.least_score,
                                             options_.candidates);
    begin += each;
  }
  std::vector<Detections> all;
  for (int64_t i = 0; i < n; ++i)
    all.push_back(found[static_cast<size_t>(i)].suppress(
        extents.item<int64_t>(2 * i), extents.item<int64_t>(2 * i + 1), options_.most_overlap,
        options_.most_found, 0, levels[0].logits.device()));
  return all;
}

std::vector<Detections> RetinaNet::detect(Variable images, const Tensor& sizes, Context& context) {
  const int64_t height = images.size(1), width = images.size(2);
  std::vector<GridSize> grids;
  const std::vector<Outputs> levels = outputs(std::move(images), context, grids);
  return found_in(levels, make_anchors(anchors_, grids, height, width), sizes);
}

}  // namespace frugal::models
