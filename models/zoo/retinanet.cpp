#include "models/zoo/retinanet.h"

#include <cmath>

#include "autograd/detection_functions.h"
#include "autograd/operators.h"
#include "models/detection/found.h"
#include "ops/dense/copy.h"
#include "ops/detection/match.h"

namespace frugal::models {
namespace {

constexpr int64_t kMapLevels = 5, kConvolutions = 4;
constexpr double kPrior = 0.01;       // the probability of an object at first
constexpr double kRetinaNetBeta = 1;  // beta of the smooth L1 loss

std::vector<GridSize> grids_of(const Variables& maps) {
  std::vector<GridSize> grids;
  for (const Variable& map : maps) grids.push_back({map.size(1), map.size(2)});
  return grids;
}

void add_to(Variable& sum, const Variable& term) { sum = sum.defined() ? sum + term : term; }

}  // namespace

RetinaNet::RetinaNet(Init& init, const RetinaNetOptions& options)
    : options_(options), anchors_(three_sides(options.anchor_side, kMapLevels)) {
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

// The channels of a pixel are its anchors, one behind the other.
Variable RetinaNet::logits_of(Variable map, Context& context) const {
  const int64_t n = map.size(0);
  return reshape(classification_.forward(std::move(map), context), {n, -1, options_.num_classes});
}

Variable RetinaNet::codes_of(Variable map, Context& context) const {
  const int64_t n = map.size(0);
  return reshape(regression_.forward(std::move(map), context), {n, -1, 4});
}

std::vector<RetinaNet::Outputs> RetinaNet::outputs(Variable x, Context& context,
                                                   std::vector<GridSize>& grids) {
  Variables maps = backbone_->levels(std::move(x), context);
  grids = grids_of(maps);
  std::vector<Outputs> all;
  for (Variable& map : maps) {
    Variable logits = logits_of(map, context);
    all.push_back({std::move(logits), codes_of(std::move(map), context)});
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
  Variables maps = backbone_->levels(std::move(images), context);
  const Device device = maps[0].device();
  const DType dtype =
      maps[0].dtype() == DType::f64 ? DType::f64 : DType::f32;  // dtype of boxes and weights
  const Tensor all_anchors = make_anchors(anchors_, grids_of(maps), height, width);
  const bool by_overlap = options_.box_loss == BoxLoss::giou;
  const double beta = beta_of(options_.box_loss, kRetinaNetBeta);
  ops::FocalTargets wanted;
  Tensor anchors, boxes, matches, codes;
  {
    const CategoryScope scope(Category::workspace);
    anchors = ops::cast(to_device(all_anchors, device), dtype);
    boxes = ops::cast(targets.boxes, dtype);
    matches = ops::match_boxes(boxes, targets.counts, anchors, MatchOptions{});
    if (!by_overlap) codes = ops::encode_matches(matches, boxes, anchors, BoxCoding{});
    wanted = ops::focal_targets(matches, targets.labels, dtype);
  }
  // Each loss is made as soon as its outputs are there. So neither outputs nor their gradients are
  // ever in memory for more than one head and level. A search needs all outputs.
  Variable classification, regression;
  std::vector<Outputs> kept;
  int64_t begin = 0;
  for (Variable& map : maps) {
    Outputs level;
    level.logits = logits_of(map, context);
    const int64_t end = begin + level.logits.size(1);
    const auto part = [&](const Tensor& x) {
      const CategoryScope scope(Category::workspace);
      return ops::contiguous(x.view({n, -1}).slice(1, begin, end)).view({-1});
    };
    Variable rows = reshape(level.logits, {-1, options_.num_classes});
    if (search == nullptr) level.logits = {};  // then the loss may write over them
    add_to(classification,
           sigmoid_focal_loss(std::move(rows), part(wanted.classes), part(wanted.class_weight)));
    level.codes = codes_of(std::move(map), context);
    const Variable said = reshape(level.codes, {-1, 4});
    if (by_overlap) {
      add_to(regression, coded_giou_loss(said, anchors.slice(0, begin, end), boxes, part(matches),
                                         part(wanted.box_weight)));
    } else {
      Tensor to;
      {
        const CategoryScope scope(Category::workspace);
        to = ops::cast(ops::contiguous(codes.slice(1, begin, end)).view({-1, 4}), said.dtype());
      }
      add_to(regression, smooth_l1_loss(said, to, part(wanted.box_weight), beta));
    }
    if (search != nullptr) kept.push_back(std::move(level));
    begin = end;
  }
  if (search != nullptr) search->found = found_in(kept, all_anchors, search->sizes);
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
