#include "models/zoo/faster_rcnn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/detection_functions.h"
#include "autograd/graph_functions.h"
#include "autograd/operators.h"
#include "models/detection/found.h"
#include "ops/dense/copy.h"
#include "ops/dense/softmax.h"
#include "ops/detection/boxes.h"
#include "ops/detection/match.h"
#include "ops/detection/nms.h"

namespace frugal::models {
namespace {

constexpr int64_t kRoiSide = 7, kMaps = 4, kFinest = 2;  // the finest map has a 2^2th of the pixels
constexpr double kFasterRcnnBeta = 1.0 / 9;              // beta of the smooth L1 loss
constexpr BoxCoding kRegionCoding{10, 10, 5, 5};
constexpr MatchOptions kAnchorMatch{0.7, 0.3, true}, kRegionMatch{0.5, 0.5, false};
constexpr double kProposalOverlap = 0.7, kLeastProposal = 1e-3, kLeastFound = 1e-2;

Tensor on_host(const Tensor& x) {
  return to_device(ops::cast(ops::contiguous(x), DType::f32), kCpu);
}

Tensor tensor_of(const std::vector<std::array<float, 4>>& boxes) {
  Tensor all = Tensor::empty({static_cast<int64_t>(boxes.size()), 4});
  for (size_t i = 0; i < boxes.size(); ++i)
    std::copy(boxes[i].begin(), boxes[i].end(), all.mut<float>() + 4 * i);
  return all;
}

std::array<float, 4> row_of(const Tensor& boxes, int64_t row) {
  std::array<float, 4> box{};
  std::copy_n(boxes.data<float>() + 4 * row, 4, box.begin());
  return box;
}

// The map for a box.  Ref: Lin et al. 2017, equation 1.
int64_t map_of(const std::array<float, 4>& box) {
  constexpr float kSide = 224, kMap = 4, kRounding = 1e-6F;
  const float side = std::sqrt((box[2] - box[0]) * (box[3] - box[1]));
  const float map = std::floor(kMap + std::log2(side / kSide) + kRounding);
  const float last = kFinest + kMaps - 1;
  return static_cast<int64_t>(std::clamp(map, static_cast<float>(kFinest), last)) - kFinest;
}

// The weights of losses are f32, or f64 with f64 activations.
DType dtype_beside(const Variable& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

Tensor there(const Tensor& x, DType dtype, Device device) {
  return to_device(ops::cast(x, dtype), device);
}

}  // namespace

// Regions that were chosen, and what the head is to say of them; on the host.
struct FasterRcnn::Samples {
  std::vector<Boxes> regions;
  std::vector<int64_t> labels;              // 0: background
  std::vector<std::array<float, 4>> boxes;  // boxes of the matched objects; 0 for background
  std::vector<std::array<float, 4>>
      codes;  // codes of these boxes for the regions; 0 for background
};

FasterRcnn::FasterRcnn(Init& init, const FasterRcnnOptions& options)
    : options_(options), anchors_(one_side(options.anchor_side, kMaps + 1)) {
  FRUGAL_CHECK(options.num_classes >= 2 && options.anchor_side >= 1,
               "[faster_rcnn] expected at least 2 classes, with the background, and anchors of at "
               "least 1 pixel, got {} and {}",
               options.num_classes, options.anchor_side);
  PyramidOptions pyramid;
  pyramid.trunk = options.trunk;
  pyramid.width = options.width;
  pyramid.in_channels = options.in_channels;
  pyramid.first_stage = 1;
  pyramid.last = LastLevels::max_pool;
  backbone_ = register_module("backbone", std::make_shared<Pyramid>(init, pyramid));
  const int64_t each = anchors_[0].each(), width = options.width;
  conv_ = register_module("rpn.head.conv.0.0", normal_conv(init, width, width, 3));
  objectness_ = register_module("rpn.head.cls_logits", normal_conv(init, width, each, 1));
  moves_ = register_module("rpn.head.bbox_pred", normal_conv(init, width, each * 4, 1));
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(std::string("roi_heads.") + name,
                           std::make_shared<Linear>(init, in, out));
  };
  fc6_ = linear("box_head.fc6", width * kRoiSide * kRoiSide, options.hidden);
  fc7_ = linear("box_head.fc7", options.hidden, options.hidden);
  classes_ = linear("box_predictor.cls_score", options.hidden, options.num_classes);
  boxes_ = linear("box_predictor.bbox_pred", options.hidden, options.num_classes * 4);
}

double FasterRcnn::beta() const { return beta_of(options_.box_loss, kFasterRcnnBeta); }

std::vector<FasterRcnn::Level> FasterRcnn::rpn(const Variables& levels, Context& context) const {
  std::vector<Level> all;
  for (const Variable& level : levels) {
    const int64_t n = level.size(0);
    const Variable hidden = relu(conv_->forward(level, context));
    // Channels of a pixel are its anchors, one behind the other.
    all.push_back({reshape(objectness_->forward(hidden, context), {n, -1}),
                   reshape(moves_->forward(hidden, context), {n, -1, 4})});
  }
  return all;
}

Tensor FasterRcnn::anchors_of(const Variables& levels, int64_t height, int64_t width) const {
  std::vector<GridSize> grids;
  for (const Variable& level : levels) grids.push_back({level.size(1), level.size(2)});
  return make_anchors(anchors_, grids, height, width);
}

Variable FasterRcnn::forward(Variable x, Context& context) {
  const Variables levels = backbone_->levels(std::move(x), context);
  Variables parts;
  for (const Level& level : rpn(levels, context))
    parts.push_back(
        concat({reshape(level.logits, {level.logits.size(0), -1, 1}), level.codes}, -1));
  return concat(parts, 1);
}

std::optional<RngKey> FasterRcnn::key(Context& context) const {
  if (options_.deterministic_sampling || context.rng == nullptr) return std::nullopt;
  return context.rng->next();
}

std::vector<FasterRcnn::Boxes> FasterRcnn::propose(const std::vector<Level>& levels,
                                                   const Tensor& anchors, const Tensor& sizes,
                                                   int64_t height, int64_t width,
                                                   bool training) const {
  const CategoryScope scope(Category::workspace);
  const Device device = levels[0].logits.device();
  const auto pictures = static_cast<size_t>(levels[0].logits.size(0));
  const int64_t most = training ? options_.train_candidates : options_.candidates;
  const int64_t kept = training ? options_.train_proposals : options_.proposals;
  if (device == kMeta)
    return std::vector<Boxes>(pictures, Boxes(static_cast<size_t>(kept), {0, 0, 1, 1}));
  std::vector<Candidates> found(pictures);
  const Tensor extents = sizes.defined() ? to_device(sizes, kCpu) : sizes;
  int64_t begin = 0;
  for (size_t l = 0; l < levels.size(); ++l) {
    const Tensor logits = on_host(levels[l].logits.value());
    const Tensor codes = on_host(levels[l].codes.value());
    const int64_t each = logits.size(1);
    for (size_t n = 0; n < pictures; ++n) {
      const auto* logit = logits.data<float>() + static_cast<int64_t>(n) * each;
      std::vector<int64_t> order(static_cast<size_t>(each));
      std::iota(order.begin(), order.end(), int64_t{0});
      const auto count = std::min(order.size(), static_cast<size_t>(most));
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                        order.end(), [&](int64_t a, int64_t b) {
                          return logit[a] > logit[b] || (logit[a] == logit[b] && a < b);
                        });
      Boxes code, anchor;
      for (size_t i = 0; i < count; ++i) {
        code.push_back(row_of(codes, static_cast<int64_t>(n) * each + order[i]));
        anchor.push_back(row_of(anchors, begin + order[i]));
      }
      const Tensor boxes = ops::decode_boxes(tensor_of(code), tensor_of(anchor));
      for (size_t i = 0; i < count; ++i)
        found[n].add(row_of(boxes, static_cast<int64_t>(i)), static_cast<int64_t>(l),
                     1 / (1 + std::exp(-logit[order[i]])));
    }
    begin += each;
  }
  std::vector<Boxes> proposals;
  for (size_t n = 0; n < pictures; ++n) {
    const auto at = static_cast<int64_t>(2 * n);
    const int64_t own_height = extents.defined() ? extents.item<int64_t>(at) : height;
    const int64_t own_width = extents.defined() ? extents.item<int64_t>(at + 1) : width;
    proposals.push_back(
        found[n]
            .suppress(own_height, own_width, kProposalOverlap, kept, kLeastProposal, device)
            .boxes);
  }
  return proposals;
}

FasterRcnn::Regions FasterRcnn::judge(const Variables& levels, const std::vector<Boxes>& regions,
                                      Context& context) const {
  const Device device = levels[0].device();
  Regions result;
  std::vector<std::vector<float>> rows(kMaps);
  std::vector<std::vector<int64_t>> order(kMaps);
  int64_t place = 0;
  for (size_t n = 0; n < regions.size(); ++n)
    for (const std::array<float, 4>& box : regions[n]) {
      const auto map = static_cast<size_t>(map_of(box));
      rows[map].push_back(static_cast<float>(n));
      rows[map].insert(rows[map].end(), box.begin(), box.end());
      order[map].push_back(place++);
    }
  Variables parts;
  RoiAlignOptions options;
  options.sampling_ratio = 2;
  double scale = 0.25;
  for (size_t map = 0; map < order.size(); ++map, scale /= 2) {
    const auto count = static_cast<int64_t>(order[map].size());
    result.order.insert(result.order.end(), order[map].begin(), order[map].end());
    // A map without regions takes part, so that each parameter has a gradient.
    Tensor boxes;
    {
      const CategoryScope scope(Category::input);
      boxes = there(Tensor::from(rows[map], {count, 5}), dtype_beside(levels[map]), device);
    }
    parts.push_back(roi_align(levels[map], boxes, {kRoiSide, kRoiSide}, scale, options));
  }
  Variable x = concat(parts, 0);
  parts.clear();
  // torchvision flattens [C, H, W].
  x = transpose(transpose(x, 2, 3), 1, 2);
  x = reshape(x, {x.size(0), -1});
  x = relu(fc6_->forward(std::move(x), context));
  x = relu(fc7_->forward(std::move(x), context));
  result.logits = classes_->forward(x, context);
  result.codes = boxes_->forward(x, context);
  return result;
}

void FasterRcnn::rpn_losses(NamedVariables& terms, const std::vector<Level>& levels,
                            const Tensor& anchors, const DetectionTargets& targets,
                            Context& context) const {
  const Device device = levels[0].logits.device();
  const DType dtype = dtype_beside(levels[0].logits);
  const int64_t n = levels[0].logits.size(0), each = anchors.size(0);
  const bool by_overlap = options_.box_loss == BoxLoss::giou;
  Tensor from, boxes, matches, wanted, codes, weights, box_weights;
  {
    const CategoryScope scope(Category::workspace);
    from = there(anchors, dtype, device);
    boxes = ops::cast(targets.boxes, dtype);
    matches = ops::match_boxes(boxes, targets.counts, from, kAnchorMatch);
    if (!by_overlap) codes = ops::encode_matches(matches, boxes, from, BoxCoding{});
    if (device == kMeta) {
      wanted = weights = box_weights = Tensor::empty({n, each}, dtype, kMeta);
    } else {
      const Tensor found = to_device(matches, kCpu);
      const auto* match = found.data<int64_t>();
      std::vector<double> objects(static_cast<size_t>(n * each)), chosen(objects), moved(objects);
      int64_t total = 0;
      for (int64_t i = 0; i < n; ++i) {
        std::vector<int64_t> labels(static_cast<size_t>(each));
        for (int64_t a = 0; a < each; ++a) {
          const int64_t own = match[i * each + a];
          labels[static_cast<size_t>(a)] = own >= 0 ? 1 : own == ops::kBackground ? 0 : -1;
        }
        for (const int64_t a :
             choose_balanced(labels, {options_.sampled_anchors, 0.5}, key(context))) {
          const auto at = static_cast<size_t>(i * each + a);
          const bool object = labels[static_cast<size_t>(a)] > 0;
          objects[at] = moved[at] = object ? 1 : 0;
          chosen[at] = 1;
          ++total;
        }
      }
      const double share = 1 / static_cast<double>(std::max<int64_t>(total, 1));
      for (double& w : chosen) w *= share;
      for (double& w : moved) w *= share;
      const auto tensor = [&](const std::vector<double>& values) {
        return there(Tensor::from(values, {n, each}), dtype, device);
      };
      wanted = tensor(objects);
      weights = tensor(chosen);
      box_weights = tensor(moved);
    }
  }
  Variable objectness, regression;
  int64_t begin = 0;
  for (const Level& level : levels) {
    const int64_t end = begin + level.logits.size(1);
    const auto part = [&](const Tensor& x) {
      const CategoryScope scope(Category::workspace);
      return ops::contiguous(x.slice(1, begin, end)).view({n * (end - begin)});
    };
    Tensor to, answers;
    {
      const CategoryScope scope(Category::workspace);
      if (!by_overlap)
        to = ops::cast(ops::contiguous(codes.slice(1, begin, end)).view({-1, 4}),
                       level.codes.dtype());
      answers = ops::cast(part(wanted), level.logits.dtype());
    }
    BinaryCrossEntropyOptions sum;
    sum.sum = true;
    const Variable by_class =
        binary_cross_entropy(reshape(level.logits, {-1}), answers, sum, part(weights));
    const Variable said = reshape(level.codes, {-1, 4});
    const Variable by_box = by_overlap ? coded_giou_loss(said, from.slice(0, begin, end), boxes,
                                                         part(matches), part(box_weights))
                                       : smooth_l1_loss(said, to, part(box_weights), beta());
    objectness = objectness.defined() ? objectness + by_class : by_class;
    regression = regression.defined() ? regression + by_box : by_box;
    begin = end;
  }
  terms.emplace_back("loss_objectness", objectness);
  terms.emplace_back("loss_rpn_box_reg", regression);
}

FasterRcnn::Samples FasterRcnn::sample(const std::vector<Boxes>& proposals,
                                       const DetectionTargets& targets, Context& context) const {
  const CategoryScope scope(Category::workspace);
  Samples samples;
  if (targets.boxes.device() == kMeta) {
    const auto regions = static_cast<size_t>(options_.sampled_regions);
    samples.regions.assign(proposals.size(), Boxes(regions, {0, 0, 1, 1}));
    samples.labels.resize(proposals.size() * regions);
    samples.boxes.resize(proposals.size() * regions);
    samples.codes.resize(proposals.size() * regions);
    return samples;
  }
  const Tensor boxes = on_host(targets.boxes), labels = to_device(targets.labels, kCpu);
  const Tensor counts = to_device(targets.counts, kCpu);
  int64_t first = 0;
  for (size_t n = 0; n < proposals.size(); ++n) {
    const int64_t objects = counts.item<int64_t>(static_cast<int64_t>(n));
    const Tensor own = boxes.slice(0, first, first + objects);
    Boxes all = proposals[n];
    for (int64_t i = 0; i < objects; ++i) all.push_back(row_of(boxes, first + i));
    const Tensor matches = ops::match_boxes(
        ops::contiguous(own), Tensor::from<int64_t>({objects}, {1}), tensor_of(all), kRegionMatch);
    std::vector<int64_t> label(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t match = matches.data<int64_t>()[i];
      label[i] = match >= 0                  ? labels.item<int64_t>(first + match)
                 : match == ops::kBackground ? 0
                                             : -1;
    }
    samples.regions.emplace_back();
    for (const int64_t i : choose_balanced(label, {options_.sampled_regions, 0.25}, key(context))) {
      const auto at = static_cast<size_t>(i);
      samples.regions.back().push_back(all[at]);
      samples.labels.push_back(label[at]);
      std::array<float, 4> object{}, code{};
      if (label[at] > 0) {
        object = row_of(boxes, first + matches.item<int64_t>(i));
        code =
            row_of(ops::encode_boxes(tensor_of({object}), tensor_of({all[at]}), kRegionCoding), 0);
      }
      samples.boxes.push_back(object);
      samples.codes.push_back(code);
    }
    first += objects;
  }
  return samples;
}

NamedVariables FasterRcnn::losses(Variable images, const DetectionTargets& targets,
                                  Context& context, Search* search) {
  const int64_t height = images.size(1), width = images.size(2);
  const Variables levels = backbone_->levels(std::move(images), context);
  const std::vector<Level> said = rpn(levels, context);
  const Tensor anchors = anchors_of(levels, height, width);
  const Tensor sizes = search != nullptr ? search->sizes : Tensor();
  const std::vector<Boxes> proposals =
      propose(said, anchors, sizes, height, width, context.training);
  if (search != nullptr) search->found = found_in(levels, proposals, search->sizes, context);
  NamedVariables of_rpn;
  rpn_losses(of_rpn, said, anchors, targets, context);
  Samples samples = sample(proposals, targets, context);
  if (samples.labels.empty()) {  // nothing was proposed: the whole picture is background
    samples.regions[0].push_back({0, 0, static_cast<float>(width), static_cast<float>(height)});
    samples.labels.push_back(0);
    samples.boxes.emplace_back();
    samples.codes.emplace_back();
  }
  const Regions regions = judge(levels, samples.regions, context);
  const Device device = regions.logits.device();
  const auto rows = static_cast<int64_t>(samples.labels.size());
  const bool by_overlap = options_.box_loss == BoxLoss::giou;
  Boxes given;  // in the order of samples
  for (const Boxes& each : samples.regions) given.insert(given.end(), each.begin(), each.end());
  std::vector<int64_t> labels, places, matches;
  Boxes codes, references, boxes;
  std::vector<double> weights;
  for (size_t i = 0; i < regions.order.size(); ++i) {
    const auto at = static_cast<size_t>(regions.order[i]);
    labels.push_back(samples.labels[at]);
    places.push_back(static_cast<int64_t>(i) * options_.num_classes + samples.labels[at]);
    matches.push_back(static_cast<int64_t>(i));
    codes.push_back(samples.codes[at]);
    references.push_back(given[at]);
    boxes.push_back(samples.boxes[at]);
    weights.push_back(samples.labels[at] > 0 ? 1 / static_cast<double>(rows) : 0);
  }
  const Variable classifier =
      cross_entropy(regions.logits, to_device(Tensor::from(labels, {rows}), device));
  // The codes of a region's own class.
  const Variable own =
      gather_rows(reshape(regions.codes, {-1, 4}), to_device(Tensor::from(places, {rows}), device));
  const DType dtype = dtype_beside(own);
  const auto beside = [&](const Boxes& all) {
    const CategoryScope scope(Category::workspace);
    return there(tensor_of(all), dtype, device);
  };
  const Tensor counts = there(Tensor::from(weights, {rows}), dtype, device);
  const Variable regression =
      by_overlap
          ? coded_giou_loss(own, beside(references), beside(boxes),
                            to_device(Tensor::from(matches, {rows}), device), counts, kRegionCoding)
          : smooth_l1_loss(own, there(tensor_of(codes), own.dtype(), device), counts, beta());
  return {{"loss_classifier", classifier},
          {"loss_box_reg", regression},
          std::move(of_rpn[0]),
          std::move(of_rpn[1])};
}

std::vector<Detections> FasterRcnn::found_in(const Variables& levels,
                                             const std::vector<Boxes>& proposals,
                                             const Tensor& sizes, Context& context) const {
  const Regions regions = judge(levels, proposals, context);
  if (regions.logits.device() == kMeta) return {};
  const CategoryScope scope(Category::workspace);
  const int64_t classes = options_.num_classes;
  const Tensor scores = ops::softmax(on_host(regions.logits.value()), -1);
  Boxes boxes;
  std::vector<size_t> picture;
  for (size_t n = 0; n < proposals.size(); ++n)
    for (const auto& box : proposals[n]) {
      boxes.push_back(box);
      picture.push_back(n);
    }
  Boxes ordered;
  for (const int64_t at : regions.order) ordered.push_back(boxes[static_cast<size_t>(at)]);
  const Tensor decoded =
      ops::decode_boxes(on_host(regions.codes.value()), tensor_of(ordered), kRegionCoding);
  // By the order in which regions were given, so that equal scores have a fixed order.
  std::vector<int64_t> row(regions.order.size());
  for (size_t i = 0; i < row.size(); ++i)
    row[static_cast<size_t>(regions.order[i])] = static_cast<int64_t>(i);
  std::vector<Candidates> found(proposals.size());
  for (size_t i = 0; i < row.size(); ++i)
    for (int64_t c = 1; c < classes; ++c) {
      const float score = scores.data<float>()[row[i] * classes + c];
      if (score > static_cast<float>(options_.least_score))
        found[picture[i]].add(row_of(decoded, row[i] * classes + c), c, score);
    }
  const Tensor extents = to_device(sizes, kCpu);
  std::vector<Detections> all;
  for (size_t n = 0; n < found.size(); ++n) {
    const auto at = static_cast<int64_t>(2 * n);
    all.push_back(found[n].suppress(extents.item<int64_t>(at), extents.item<int64_t>(at + 1),
                                    options_.most_overlap, options_.most_found, kLeastFound));
  }
  return all;
}

std::vector<Detections> FasterRcnn::detect(Variable images, const Tensor& sizes, Context& context) {
  const int64_t height = images.size(1), width = images.size(2);
  const Variables levels = backbone_->levels(std::move(images), context);
  const std::vector<Boxes> proposals =
      propose(rpn(levels, context), anchors_of(levels, height, width), sizes, height, width, false);
  return found_in(levels, proposals, sizes, context);
}

}  // namespace frugal::models
