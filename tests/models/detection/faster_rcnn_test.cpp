#include "models/zoo/faster_rcnn.h"

#include <algorithm>

#include "autograd/operators.h"
#include "ops/detection/detection_loss.h"
#include "ops/detection/match.h"
#include "tests/models/detection/two_pictures.h"
#include "tests/models/zoo.h"

namespace frugal::models {
namespace {

FasterRcnnOptions small_faster_rcnn() {
  FasterRcnnOptions options;
  options.trunk.depths = {1, 1, 1, 1};
  options.trunk.bottleneck = false;
  options.trunk.width = 8;
  options.width = 4;
  options.hidden = 16;
  options.anchor_side = 8;
  options.num_classes = 3;
  options.train_candidates = options.train_proposals = 50;
  options.candidates = options.proposals = 30;
  options.sampled_regions = 40;
  return options;
}

}  // namespace

TEST_CASE("choose_balanced: at most a share of positive ones, the first ones or random ones") {
  const std::vector<int64_t> labels = {0, 1, -1, 2, 0, 0, 1, -1, 0, 0};
  using Places = std::vector<int64_t>;
  CHECK(choose_balanced(labels, {4, 0.5}, {}) == Places{0, 1, 3, 4});
  CHECK(choose_balanced(labels, {6, 0.2}, {}) == Places{0, 1, 4, 5, 8, 9});
  CHECK(choose_balanced(labels, {20, 1}, {}) == Places{0, 1, 3, 4, 5, 6, 8, 9});
  CHECK(choose_balanced({}, {4, 0.5}, {}).empty());
  std::vector<int> times(labels.size());
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Places places = choose_balanced(labels, {4, 0.5}, RngKey{seed, 0});
    CHECK(places.size() == 4);
    CHECK(std::is_sorted(places.begin(), places.end()));
    for (const int64_t place : places) ++times[static_cast<size_t>(place)];
  }
  CHECK((times[2] == 0 && times[7] == 0));
  for (const size_t positive : {1, 3, 6}) CHECK(std::abs(times[positive] - 200) < 40);
  for (const size_t negative : {0, 4, 5, 8, 9}) CHECK(std::abs(times[negative] - 120) < 40);
}

TEST_CASE("faster_rcnn: names, shapes and parameters are torchvision's") {
  zoo::check_published<FasterRcnn>(
      [](const std::string&) { return FasterRcnnOptions{}; },
      {{"fasterrcnn_resnet50_fpn", 41808406, 348, 0x9065549cd64d854e}});
}

TEST_CASE("faster_rcnn: losses by name, a gradient for each parameter, the same without keys") {
  Init init;
  FasterRcnnOptions options = small_faster_rcnn();
  options.sampled_anchors = 16;  // fewer than there are
  FasterRcnn net(init, options);
  Context context;
  const Variable x = zoo::randn({2, 64, 96, 3}, 1);
  const NamedVariables terms = net.losses(x, two_pictures(), context);
  std::vector<std::string> names;
  std::vector<double> values;
  for (const auto& [name, term] : terms) {
    names.push_back(name);
    values.push_back(term.value().item());
    CHECK(values.back() > 0);
  }
  CHECK(names == std::vector<std::string>{"loss_classifier", "loss_box_reg", "loss_objectness",
                                          "loss_rpn_box_reg"});
  backward(total(terms));
  for (const auto& p : net.parameters()) CHECK_MESSAGE(p.parameter->grad().defined(), p.name);
  // Without keys the first candidates are taken; with keys others are.
  CHECK(net.losses(x, two_pictures(), context)[2].second.value().item() == values[2]);
  Rng rng(1);
  context.rng = &rng;
  CHECK(net.losses(x, two_pictures(), context)[2].second.value().item() != values[2]);
  CHECK(rng.state().offset == 4);  // two pictures, two samplers
  context.training = false;
  CHECK(net.forward(x, context).shape() ==
        Shape{2, 3 * (16 * 24 + 8 * 12 + 4 * 6 + 2 * 3 + 1 * 2), 5});
}

TEST_CASE("faster_rcnn: with box_loss giou both losses of boxes are 1 - GIoU") {
  Init init;
  FasterRcnnOptions options = small_faster_rcnn();
  options.box_loss = BoxLoss::giou;
  options.train_proposals = 1;
  options.sampled_anchors = 1 << 20;  // all
  FasterRcnn net(init, options);
  // The RPN says its anchors, and the head says boxes a tenth of their width to the right.
  for (const auto& p : net.parameters()) {
    float* values = p.parameter->value().mut<float>();
    if (p.name.starts_with("rpn.head.bbox_pred.") ||
        p.name.starts_with("roi_heads.box_predictor.bbox_pred."))
      std::fill_n(values, p.parameter->value().numel(), 0.0F);
    if (p.name == "roi_heads.box_predictor.bbox_pred.bias")
      for (int64_t i = 0; i < p.parameter->value().numel(); i += 4) values[i] = 1;
  }
  Context context;
  const DetectionTargets targets = two_pictures();
  const NamedVariables terms = net.losses(zoo::randn({2, 64, 96, 3}, 1), targets, context);
  // Two regions are objects, and each picture has one that is proposed, which is background.
  CHECK(terms[1].second.value().item() == doctest::Approx(2 * (1 - 0.9 / 1.1) / 4).epsilon(1e-5));
  const Tensor anchors =
      make_anchors(one_side(8, 5), {{16, 24}, {8, 12}, {4, 6}, {2, 3}, {1, 2}}, 64, 96);
  const Tensor matches = ops::match_boxes(targets.boxes, targets.counts, anchors, {0.7, 0.3, true});
  double sum = 0, counted = 0;
  for (int64_t i = 0; i < matches.numel(); ++i) {
    const int64_t match = matches.item<int64_t>(i), a = i % anchors.size(0);
    if (match != ops::kBetween) ++counted;
    if (match < 0) continue;
    sum += ops::giou(anchors.slice(0, a, a + 1), targets.boxes.slice(0, match, match + 1), {})
               .loss.item();
  }
  REQUIRE(sum > 0);
  CHECK(terms[3].second.value().item() == doctest::Approx(sum / counted).epsilon(1e-4));
  backward(total(terms));
  for (const auto& p : net.parameters()) CHECK_MESSAGE(p.parameter->grad().defined(), p.name);
}

TEST_CASE("faster_rcnn: pictures without objects, and what is found") {
  Init init;
  FasterRcnnOptions options = small_faster_rcnn();
  options.least_score = 0.2;  // a fresh network says about 1/3 of each class
  options.most_found = 10;
  FasterRcnn net(init, options);
  Context context;
  const DetectionTargets none = {Tensor::zeros({0, 4}), Tensor::zeros({0}, DType::i64),
                                 Tensor::zeros({1}, DType::i64)};
  const NamedVariables terms = net.losses(zoo::randn({1, 64, 64, 3}, 1), none, context);
  CHECK(terms[1].second.value().item() == 0);
  CHECK(terms[3].second.value().item() == 0);
  backward(total(terms));
  context.training = false;
  const NoGrad no_grad;
  const Variable x = zoo::randn({2, 64, 96, 3}, 1);
  const Tensor sizes = Tensor::of({{64, 96}, {40, 50}}, DType::i64);
  Detector::Search search{sizes};
  net.losses(x, two_pictures(), context, &search);
  const std::vector<Detections> found = net.detect(x, sizes, context);
  REQUIRE(found.size() == 2);
  for (size_t n = 0; n < found.size(); ++n) {
    CHECK(found[n].boxes.size() == 10);
    CHECK(search.found[n].boxes == found[n].boxes);
    for (size_t i = 0; i < found[n].boxes.size(); ++i) {
      const auto& box = found[n].boxes[i];
      CHECK((box[0] >= 0 && box[1] >= 0 && box[2] <= (n == 0 ? 96 : 50) &&
             box[3] <= (n == 0 ? 64 : 40)));
      CHECK((found[n].labels[i] == 1 || found[n].labels[i] == 2));
    }
  }
}

TEST_CASE("faster_rcnn: on meta a step has as many regions as it can have") {
  Init init = zoo::meta_init();
  FasterRcnn net(init, small_faster_rcnn());
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
