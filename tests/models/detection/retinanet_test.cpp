#include "models/zoo/retinanet.h"

#include <cmath>

#include "autograd/operators.h"
#include "ops/dense/copy.h"
#include "ops/detection/boxes.h"
#include "ops/detection/detection_loss.h"
#include "ops/detection/match.h"
#include "tests/models/detection/two_pictures.h"
#include "tests/models/zoo.h"

namespace frugal::models {
namespace {

RetinaNetOptions small_retinanet() {
  RetinaNetOptions options;
  options.trunk.depths = {1, 1, 1, 1};
  options.trunk.bottleneck = false;
  options.trunk.width = 8;
  options.width = 8;
  options.anchor_side = 8;
  options.num_classes = 3;
  return options;
}

}  // namespace

TEST_CASE("retinanet: names, shapes and parameters are torchvision's") {
  zoo::check_published<RetinaNet>([](const std::string&) { return RetinaNetOptions{}; },
                                  {{"retinanet_resnet50_fpn", 34068119, 354, 0x63d0f17b74727177}});
}

TEST_CASE("retinanet: losses by name, and a gradient for each parameter") {
  Init init;
  RetinaNet net(init, small_retinanet());
  CHECK(net.classes() == 3);
  Context context;
  const Variable x = zoo::randn({2, 64, 96, 3}, 1);
  const NamedVariables terms = net.losses(x, two_pictures(), context);
  REQUIRE(terms.size() == 2);
  CHECK(terms[0].first == "classification");
  CHECK(terms[1].first == "bbox_regression");
  for (const auto& [name, term] : terms) CHECK(term.value().item() > 0);
  backward(total(terms));
  for (const auto& p : net.parameters()) CHECK_MESSAGE(p.parameter->grad().defined(), p.name);
  const int64_t anchors = 9 * (8 * 12 + 4 * 6 + 2 * 3 + 1 * 2 + 1 * 1);
  context.training = false;
  CHECK(net.forward(x, context).shape() == Shape{2, anchors, 3 + 4});
}

TEST_CASE("retinanet: with box_loss the boxes' loss is 1 - GIoU, or smooth") {
  const Variable x = zoo::randn({2, 64, 96, 3}, 1);
  const auto loss_of = [&](BoxLoss loss, Tensor* out) {
    Init init;
    RetinaNetOptions options = small_retinanet();
    options.box_loss = loss;
    RetinaNet net(init, options);
    // Codes near 0 would hide what a size does.
    for (const auto& p : net.parameters())
      if (p.name == "head.regression_head.bbox_reg.bias")
        for (int64_t i = 0; i < p.parameter->value().numel(); ++i)
          p.parameter->value().mut<float>()[i] = 0.1F * static_cast<float>(i % 5) - 0.2F;
    Context context;
    const Variable term = net.losses(x, two_pictures(), context)[1].second;
    backward(term);
    if (out != nullptr) *out = net.forward(x, context).value();
    return term.value().item();
  };
  Tensor said;
  const double overlap = loss_of(BoxLoss::giou, &said), l1 = loss_of(BoxLoss::l1, nullptr),
               smooth = loss_of(BoxLoss::smooth_l1, nullptr);
  const Tensor anchors =
      make_anchors(three_sides(8, 5), {{8, 12}, {4, 6}, {2, 3}, {1, 2}, {1, 1}}, 64, 96);
  const DetectionTargets targets = two_pictures();
  const Tensor matches = ops::match_boxes(targets.boxes, targets.counts, anchors, MatchOptions{});
  const Tensor codes = ops::contiguous(said[0].slice(1, 3, 7));
  const Tensor boxes = ops::decode_boxes(codes, anchors);
  const Tensor wanted = ops::encode_matches(matches, targets.boxes, anchors, {});
  double by_overlap = 0, by_code = 0, by_smooth = 0, matched = 0;
  for (int64_t a = 0; a < anchors.size(0); ++a) {
    const int64_t match = matches.item<int64_t>(a);
    if (match < 0) continue;
    ++matched;
    by_overlap += ops::giou(boxes.slice(0, a, a + 1), targets.boxes.slice(0, match, match + 1), {})
                      .loss.item();
    for (int64_t k = 0; k < 4; ++k) {
      const double d = std::abs(codes.item(4 * a + k) - wanted.item(4 * a + k));
      by_code += d;
      by_smooth += d < 1 ? d * d / 2 : d - 0.5;
    }
  }
  REQUIRE(matched >= 2);
  CHECK(overlap == doctest::Approx(by_overlap / matched / 2).epsilon(1e-4));
  CHECK(l1 == doctest::Approx(by_code / matched / 2).epsilon(1e-4));
  CHECK(smooth == doctest::Approx(by_smooth / matched / 2).epsilon(1e-4));
}

TEST_CASE("retinanet: pictures without objects have no loss of boxes") {
  Init init;
  RetinaNet net(init, small_retinanet());
  Context context;
  const DetectionTargets none = {Tensor::zeros({0, 4}), Tensor::zeros({0}, DType::i64),
                                 Tensor::zeros({1}, DType::i64)};
  const NamedVariables terms = net.losses(zoo::randn({1, 64, 64, 3}, 1), none, context);
  CHECK(terms[0].second.value().item() > 0);
  CHECK(terms[1].second.value().item() == 0);
  backward(total(terms));
}

TEST_CASE("retinanet: what is found lies in the picture, by falling score") {
  Init init;
  RetinaNetOptions options = small_retinanet();
  options.least_score = 0.0099;  // a fresh network gives all anchors scores near 0.01
  options.most_found = 20;
  RetinaNet net(init, options);
  Context context;
  context.training = false;
  const NoGrad no_grad;
  const Variable x = zoo::randn({2, 64, 96, 3}, 1);
  const Tensor sizes = Tensor::of({{64, 96}, {40, 50}}, DType::i64);
  Detector::Search search{sizes};
  net.losses(x, two_pictures(), context, &search);
  const std::vector<Detections> found = net.detect(x, sizes, context);
  REQUIRE(found.size() == 2);
  for (size_t n = 0; n < found.size(); ++n) {
    CHECK(found[n].boxes.size() == 20);
    CHECK(search.found[n].boxes == found[n].boxes);
    for (size_t i = 0; i < found[n].boxes.size(); ++i) {
      const auto& box = found[n].boxes[i];
      CHECK((box[0] >= 0 && box[1] >= 0 && box[2] <= (n == 0 ? 96 : 50) &&
             box[3] <= (n == 0 ? 64 : 40)));
      CHECK((i == 0 || found[n].scores[i] <= found[n].scores[i - 1]));
      CHECK((found[n].labels[i] >= 0 && found[n].labels[i] < 3));
    }
  }
}

TEST_CASE("retinanet: the logits of two levels are never together in memory") {
  Init init = zoo::meta_init();
  RetinaNetOptions options = small_retinanet();
  options.num_classes = 500;
  RetinaNet net(init, options);
  Context context;
  context.device = kMeta;
  constexpr int64_t n = 8;
  const DetectionTargets targets = {Tensor::empty({n, 4}, DType::f32, kMeta),
                                    Tensor::empty({n}, DType::i64, kMeta),
                                    Tensor::empty({n}, DType::i64, kMeta)};
  const int64_t logits = n * 9 * (32 * 32) * 500 * 4;  // bytes of the logits of the finest level
  const Variable images(Tensor::empty({n, 256, 256, 3}, DType::f32, kMeta));
  const int64_t before = allocator(kMeta).report().live_total;
  allocator(kMeta).reset_peak();
  const Variable loss = total(net.losses(images, targets, context));
  // The logits of the finest level and their gradient; then the gradients of all levels alone.
  CHECK(allocator(kMeta).report().peak_total - before < logits * 9 / 4);
  allocator(kMeta).reset_peak();
  backward(loss);
  CHECK(allocator(kMeta).report().peak_total - before < logits * 8 / 5);
}

TEST_CASE("retinanet: on meta a step has the same shapes") {
  Init init = zoo::meta_init();
  RetinaNet net(init, small_retinanet());
  Context context;
  context.device = kMeta;
  const DetectionTargets targets = {Tensor::empty({6, 4}, DType::f32, kMeta),
                                    Tensor::empty({6}, DType::i64, kMeta),
                                    Tensor::empty({2}, DType::i64, kMeta)};
  const NamedVariables terms =
      net.losses(Variable(Tensor::empty({2, 64, 96, 3}, DType::f32, kMeta)), targets, context);
  backward(total(terms));
  for (const auto& p : net.parameters())
    CHECK_MESSAGE(p.parameter->grad().shape() == p.parameter->shape(), p.name);
}

}  // namespace frugal::models
