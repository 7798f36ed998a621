// The ops of ops/detection against torchvision (golden.inc, made by golden.py), and what it cannot
// show: empty inputs, errors, `meta`, f64.
#include <doctest/doctest.h>

#include <algorithm>

#include "ops/detection/boxes.h"
#include "ops/detection/detection_loss.h"
#include "ops/detection/match.h"
#include "ops/detection/nms.h"
#include "ops/detection/roi_align.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

#include "tests/ops/detection/golden.inc"

Tensor of(const std::vector<double>& values, const Shape& shape, DType dtype = DType::f32) {
  return cast(Tensor::from(values, shape), dtype);
}

Tensor of(const std::vector<int64_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

constexpr double kSmall = 2e-6;  // f32, relative

}  // namespace

TEST_CASE("box_iou, box_giou: torchvision's values") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = of(kA, {4, 4}, dtype), b = of(kB, {5, 4}, dtype);
    CHECK(error(box_iou(a, b), kIou) < kSmall);
    CHECK(error(box_giou(a, b), kGiou) < kSmall);
    CHECK(same_bits(box_iou(with_gaps(a), with_gaps(b)), box_iou(a, b)));
  }
  CHECK(box_iou(of({}, {0, 4}), of(kB, {5, 4})).shape() == Shape{0, 5});
  CHECK(box_iou(of(kA, {4, 4}), of({}, {0, 4})).shape() == Shape{4, 0});
  CHECK(box_giou(Tensor::empty({2, 4}, DType::f32, kMeta), Tensor::empty({3, 4}, DType::f32, kMeta))
            .shape() == Shape{2, 3});
  CHECK_THROWS_WITH_AS(box_iou(Tensor::zeros({2, 3}), Tensor::zeros({2, 4})),
                       "[box_iou] expected a [N, 4], got [2, 3] f32 on cpu", Error);
}

TEST_CASE("encode_boxes, decode_boxes: torchvision's values; one undoes the other") {
  const BoxCoding coding{10, 10, 5, 5};
  const Tensor a = of(kA, {4, 4}), b = of(kB, {5, 4}).slice(0, 0, 4);
  CHECK(error(encode_boxes(b, a, coding), kEncoded) < kSmall);
  CHECK(error(decode_boxes(of(kCodes, {4, 8}), a, coding), kDecoded) < kSmall);
  CHECK(error(decode_boxes(encode_boxes(b, a, coding), a, coding), b.to_vector()) < 1e-5);
  CHECK(decode_boxes(of({}, {0, 8}), of({}, {0, 4})).shape() == Shape{0, 8});
  CHECK_THROWS_WITH_AS(decode_boxes(Tensor::zeros({2, 6}), Tensor::zeros({2, 4})),
                       "[decode_boxes] expected codes [N, K * 4], got [2, 6] f32 on cpu", Error);
}

TEST_CASE("nms: torchvision's rows, with equal scores and with groups") {
  const Tensor boxes = of(kMany, {24, 4}), scores = of(kScores, {24}), groups = of(kGroups);
  CHECK(nms(boxes, scores, 0.4).to_vector<int64_t>() == kNms);
  CHECK(nms(boxes, scores, 0.4, groups).to_vector<int64_t>() == kBatchedNms);
  CHECK(nms(cast(boxes, DType::f64), cast(scores, DType::f64), 0.4).to_vector<int64_t>() == kNms);
  CHECK(nms(of({}, {0, 4}), of({}, {0}), 0.5).shape() == Shape{0});
  // More rows than the bits of a word.
  const Tensor equal = Tensor::of({{0, 0, 4, 4}});
  Tensor many = Tensor::empty({150, 4});
  for (int64_t i = 0; i < 150; ++i) copy_into(many.slice(0, i, i + 1), equal);
  CHECK(nms(many, Tensor::full({150}, 0.5), 0.5).to_vector<int64_t>() == std::vector<int64_t>{0});
  CHECK(nms(many, Tensor::full({150}, 0.5), 1).numel() == 150);
  CHECK(nms(Tensor::empty({7, 4}, DType::f32, kMeta), Tensor::empty({7}, DType::f32, kMeta), 0.5)
            .shape() == Shape{7});
  CHECK_THROWS_WITH_AS(nms(equal, Tensor::full({1}, kNan), 0.5),
                       "[nms] expected numbers as scores, got nan in row 0", Error);
}

// Boxes that are moved apart by their group lose digits in f32, and pairs near the threshold
// change.
TEST_CASE("nms: a group is judged as if it were alone, whatever its number") {
  const int64_t n = 400;
  Tensor boxes = Tensor::empty({n, 4});
  for (int64_t i = 0; i < n; ++i) {
    float* const box = boxes.mut<float>() + 4 * i;
    const auto at = static_cast<uint64_t>(4 * i);
    for (int k = 0; k < 2; ++k) {
      box[k] = 1000 + 40 * uniform({1, 0}, at + static_cast<uint64_t>(k));
      box[k + 2] = box[k] + 4 + 4 * uniform({1, 0}, at + 2 + static_cast<uint64_t>(k));
    }
  }
  const Tensor scores = Tensor::rand({n}, {2, 0});
  const auto kept = [&](int64_t first) {
    std::vector<int64_t> groups(n / 2, first);
    groups.resize(n, first + 1);
    std::vector<int64_t> rows = nms(boxes, scores, 0.5, of(groups)).to_vector<int64_t>();
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  std::vector<int64_t> alone;
  for (const int64_t from : {int64_t{0}, n / 2}) {
    const Tensor own =
        nms(boxes.slice(0, from, from + n / 2), scores.slice(0, from, from + n / 2), 0.5);
    for (const int64_t row : own.to_vector<int64_t>()) alone.push_back(from + row);
  }
  std::sort(alone.begin(), alone.end());
  for (const int64_t first : {0, 20000}) CHECK(kept(first) == alone);
}

TEST_CASE("match_boxes: torchvision's matches") {
  const Tensor boxes = of(kA, {4, 4}), anchors = of(kMany, {24, 4});
  CHECK(match_boxes(boxes, of({4}), anchors, {0.5, 0.3, false}).to_vector<int64_t>() == kMatches);
  CHECK(match_boxes(boxes, of({4}), anchors, {0.5, 0.3, true}).to_vector<int64_t>() ==
        kMatchesLowQuality);
  // The objects now belong to the second of three pictures; the others have none.
  const Tensor apart = match_boxes(boxes, of({0, 4, 0}), anchors, {0.5, 0.3, true});
  CHECK(apart.shape() == Shape{3, 24});
  CHECK(apart[1].to_vector<int64_t>() == kMatchesLowQuality);
  CHECK(apart[0].to_vector<int64_t>() == std::vector<int64_t>(24, kBackground));
  CHECK(apart[2].to_vector<int64_t>() == std::vector<int64_t>(24, kBackground));
  CHECK(match_boxes(of({}, {0, 4}), of({0}), anchors, {}).to_vector<int64_t>() ==
        std::vector<int64_t>(24, kBackground));
  CHECK(match_boxes(boxes, of({4}), of({}, {0, 4}), {}).shape() == Shape{1, 0});
  CHECK_THROWS_WITH_AS(match_boxes(boxes, of({3}), anchors, {}),
                       "[match_boxes] expected counts with the sum 4, got another sum", Error);
  CHECK_THROWS_WITH_AS(match_boxes(boxes, of({4}), anchors, {0.3, 0.4}),
                       "[match_boxes] expected low to be at most high, got 0.4 and 0.3", Error);
}

TEST_CASE("encode_matches, focal_targets: each picture counts the same") {
  const Tensor boxes = Tensor::of({{0, 0, 4, 4}, {2, 2, 10, 6}});
  const Tensor anchors = Tensor::of({{0, 0, 4, 2}, {2, 2, 10, 6}, {0, 0, 2, 2}});
  const Tensor matches = of({0, -1, -2, -2, 1, 1}).view({2, 3});
  const Tensor codes = encode_matches(matches, boxes, anchors, {1, 1, 1, 1});
  CHECK(codes.shape() == Shape{2, 3, 4});
  const double log2 = std::log(2.0), log4 = std::log(4.0);
  CHECK(error(codes, {0, 0.5, 0, log2, 0, 0, 0, 0, 0,   0,   0,    0,
                      0, 0,   0, 0,    0, 0, 0, 0, 2.5, 1.5, log4, log2}) < kSmall);
  const FocalTargets targets = focal_targets(matches, of({7, 5}), DType::f32);
  CHECK(targets.classes.to_vector<int64_t>() == std::vector<int64_t>{7, -1, -1, -1, 5, 5});
  CHECK(targets.class_weight.to_vector() == std::vector<double>{0.5, 0.5, 0, 0, 0.25, 0.25});
  CHECK(targets.box_weight.to_vector() == std::vector<double>{0.5, 0, 0, 0, 0.25, 0.25});
}

TEST_CASE("sigmoid_focal: torchvision's loss and gradient") {
  const Tensor logits = of(kLogits, {4, 3}), classes = of({2, -1, 0, -1});
  const WeightedLoss plain = sigmoid_focal(logits, classes, {}, {});
  CHECK(plain.loss.item() == doctest::Approx(kFocal[0]).epsilon(1e-6));
  CHECK(error(plain.gradient, kFocalGradient) < kSmall);
  // Half of each row, but for the last one.
  const WeightedLoss half = sigmoid_focal(logits, classes, Tensor::of({0.5, 0.5, 0.5, 0}), {});
  std::vector<double> expected = kFocalGradient;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] *= i < 9 ? 0.5 : 0;
  CHECK(error(half.gradient, expected) < kSmall);
  // Logits of any size.
  const Tensor large = Tensor::of({{200, -200}});
  const WeightedLoss right = sigmoid_focal(large, of({0}), {}, {});
  CHECK(right.loss.item() == 0);
  const WeightedLoss wrong = sigmoid_focal(large, of({1}), {}, {});
  CHECK(wrong.loss.item() == doctest::Approx(0.25 * 200 + 0.75 * 200));
  CHECK(error(wrong.gradient, {0.75, -0.25}) < kSmall);
}

TEST_CASE("smooth_l1, giou: torchvision's losses and gradients") {
  const WeightedLoss smooth = smooth_l1(of(kMoved, {4, 4}), of(kA, {4, 4}), {}, 1.0 / 9);
  CHECK(smooth.loss.item() == doctest::Approx(kSmooth[0]).epsilon(1e-6));
  CHECK(error(smooth.gradient, kSmoothGradient) < 1e-4);  // differences of close numbers
  const WeightedLoss absolute =
      smooth_l1(Tensor::of({{1, -2, 3}}), Tensor::zeros({1, 3}), Tensor::of({2}), 0);
  CHECK(absolute.loss.item() == 12);
  CHECK(absolute.gradient.to_vector() == std::vector<double>{2, -2, 2});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const WeightedLoss loss = giou(of(kGiouBoxes, {4, 4}, dtype), of(kA, {4, 4}, dtype), {});
    CHECK(loss.loss.item() == doctest::Approx(kGiouLoss[0]).epsilon(1e-6));
    CHECK(error(loss.gradient, kGiouGradient) < 1e-5);
  }
  CHECK(giou(of({}, {0, 4}), of({}, {0, 4}), {}).loss.item() == 0);
}

TEST_CASE("coded_giou: torchvision's loss and gradient of decoded boxes") {
  const BoxCoding coding{10, 10, 5, 5};
  const Tensor matches = of(std::vector<int64_t>{0, 3, 1, 3, 2, 2});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor codes = of(kCodedBoxes, {6, 4}, dtype), boxes = of(kA, {4, 4}, dtype);
    // Three references for six codes: the golden rows 4 and 5 see from others.
    const Tensor four = boxes.slice(0, 0, 4);
    const WeightedLoss first =
        coded_giou(codes.slice(0, 0, 4), four, boxes, matches.slice(0, 0, 4), {}, coding);
    const WeightedLoss last = coded_giou(codes.slice(0, 4, 6), boxes.slice(0, 0, 2), boxes,
                                         matches.slice(0, 4, 6), {}, coding);
    CHECK(first.loss.item() + last.loss.item() == doctest::Approx(kCodedGiou[0]).epsilon(1e-6));
    std::vector<double> gradient = first.gradient.to_vector();
    for (const double value : last.gradient.to_vector()) gradient.push_back(value);
    CHECK(error(Tensor::from(gradient, {6, 4}), kCodedGiouGradient) < 1e-5);
  }
  // A row without a box, and a row of weight 0, count nothing; rows go round the references.
  const Tensor codes = Tensor::zeros({3, 4}), box = Tensor::of({{0, 0, 2, 2}});
  const WeightedLoss loss =
      coded_giou(codes, box, Tensor::of({{0, 0, 2, 1}}), of(std::vector<int64_t>{0, -1, 0}),
                 Tensor::of({2, 1, 0}), {});
  CHECK(loss.loss.item() == doctest::Approx(2 * 0.5));
  CHECK(loss.gradient.slice(0, 1, 3).to_vector() == std::vector<double>(8, 0.0));
  CHECK(
      coded_giou(of({}, {0, 4}), of({}, {0, 4}), of({}, {0, 4}), of(std::vector<int64_t>{}), {}, {})
          .loss.item() == 0);
}

TEST_CASE("roi_align: torchvision's cells and gradients, in one thread or several") {
  const Tensor x = of(kMaps, {2, 5, 6, 2}), boxes = of(kRegions, {4, 5});
  const Tensor dy = of(kAlignedDy, {4, 2, 3, 2});
  for (const int threads : {1, 3}) {
    const ThreadsScope scope(threads);
    const RoiAlignGrid two{2, 3, 0.25, {2, false}}, adaptive{2, 3, 0.25, {0, true}};
    CHECK(error(roi_align(x, boxes, two), kAlignedTwo) < kSmall);
    CHECK(error(roi_align_backward(dy, boxes, x.shape(), two), kAlignedGradientTwo) < kSmall);
    CHECK(error(roi_align(x, boxes, adaptive), kAlignedAdaptive) < kSmall);
    CHECK(error(roi_align_backward(dy, boxes, x.shape(), adaptive), kAlignedGradientAdaptive) <
          kSmall);
  }
  const Tensor none =
      roi_align_backward(Tensor::zeros({0, 2, 3, 2}), of({}, {0, 5}), x.shape(), {2, 3, 0.25, {}});
  CHECK(none.to_vector() == std::vector<double>(static_cast<size_t>(x.numel())));
}

}  // namespace frugal::ops
