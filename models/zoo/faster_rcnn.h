// torchvision's Faster R-CNN: a pyramid, a network that proposes regions (RPN), and a head that
// classifies each region and moves its box.
// Ref: Ren et al. 2015; Lin et al. 2017 (Feature Pyramid Networks), section 4.
#pragma once
#include "models/detection/anchors.h"
#include "models/detection/detector.h"
#include "models/detection/sampler.h"
#include "models/detection/trunk.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct FasterRcnnOptions {
  ResNetOptions trunk = resnet_options("resnet50");
  int64_t width = 256;       // channels of the pyramid
  int64_t hidden = 1024;     // units of the head's two layers
  int64_t anchor_side = 32;  // side at the finest level, in pixels; doubled from level to level
  int64_t in_channels = 3;
  int64_t num_classes = 91;  // with the background, which is class 0
  // The first candidates in order take part in the losses, and not random ones.
  bool deterministic_sampling = false;
  int64_t train_candidates = 2000, candidates = 1000;  // most boxes of a level before suppression
  int64_t train_proposals = 2000, proposals = 1000;    // most boxes of a picture after suppression
  int64_t sampled_anchors = 256, sampled_regions = 512;
  // The loss of boxes in the RPN and in the head. smooth_l1 has a beta of 1/9.
  BoxLoss box_loss = BoxLoss::smooth_l1;
  double least_score = 0.05;  // what is found has a higher score
  double most_overlap = 0.5;  // a box that overlaps a better one of its class more is left out
  int64_t most_found = 100;   // most objects of a picture

  static Published<FasterRcnnOptions> published() { return {{"fasterrcnn_resnet50_fpn", {}}}; }
  static std::vector<Option<FasterRcnnOptions>> list() {
    return {{keys::kTrunk,
             [](FasterRcnnOptions& options, const Value& name) {
               options.trunk = trunk_options(name.text());
             },
             "resnet50"},
            {keys::kWidth, &FasterRcnnOptions::width},
            {keys::kAnchorSide, &FasterRcnnOptions::anchor_side},
            {keys::kBoxLoss, &FasterRcnnOptions::box_loss},
            {{"deterministic_sampling", range::flag(),
              "fasterrcnn_resnet50_fpn: the losses take the first candidates in order, and not "
              "random ones, so that another program can do the same."},
             &FasterRcnnOptions::deterministic_sampling},
            {keys::kInChannels, &FasterRcnnOptions::in_channels},
            {keys::kNumClasses, &FasterRcnnOptions::num_classes}};
  }
};

// forward(): [N, H, W, C] -> [N, A, 1 + 4], what the RPN says of all anchors: logits and codes.
// losses(): loss_classifier, loss_box_reg, loss_objectness, loss_rpn_box_reg. Proposals are made on
// the host, beside the graph, so the losses wait for the device. On `meta` each picture has
// sampled_regions regions, as many as it can have.
// Random sampling draws a key of context.rng for each picture and each of the two samplers; without
// an rng it is deterministic.
class FasterRcnn : public Detector {
 public:
  FasterRcnn(Init& init, const FasterRcnnOptions& options);
  Variable forward(Variable x, Context& context) override;
  NamedVariables losses(Variable images, const DetectionTargets& targets, Context& context,
                        Search* search = nullptr) override;
  std::vector<Detections> detect(Variable images, const Tensor& sizes, Context& context) override;
  int64_t classes() const override { return options_.num_classes; }
  std::string head_prefix() override { return "roi_heads.box_predictor."; }

 private:
  using Boxes = std::vector<std::array<float, 4>>;
  // What the RPN says of a level.
  struct Level {
    Variable logits;  // [N, A]
    Variable codes;   // [N, A, 4]
  };
  // What the head says of regions, level after level.
  struct Regions {
    std::vector<int64_t> order;  // the places that these regions had in the given list
    Variable logits;             // [R, num_classes]
    Variable codes;              // [R, num_classes * 4]
  };
  struct Samples;

  std::vector<Level> rpn(const Variables& levels, Context& context) const;
  Tensor anchors_of(const Variables& levels, int64_t height, int64_t width) const;
  // The regions of each picture. sizes: see Search; undefined: all pictures are `height` x `width`.
  std::vector<Boxes> propose(const std::vector<Level>& levels, const Tensor& anchors,
                             const Tensor& sizes, int64_t height, int64_t width,
                             bool training) const;
  // On `meta`, `regions` holds a number of regions for each picture and no boxes.
  Regions judge(const Variables& levels, const std::vector<Boxes>& regions, Context& context) const;
  void rpn_losses(NamedVariables& terms, const std::vector<Level>& levels, const Tensor& anchors,
                  const DetectionTargets& targets, Context& context) const;
  Samples sample(const std::vector<Boxes>& proposals, const DetectionTargets& targets,
                 Context& context) const;
  std::vector<Detections> found_in(const Variables& levels, const std::vector<Boxes>& proposals,
                                   const Tensor& sizes, Context& context) const;
  std::optional<RngKey> key(Context& context) const;
  double beta() const;  // beta of the loss of codes

  FasterRcnnOptions options_;
  std::vector<AnchorLevel> anchors_;
  std::shared_ptr<Pyramid> backbone_;
  std::shared_ptr<FilledConv2d> conv_, objectness_, moves_;
  std::shared_ptr<Linear> fc6_, fc7_, classes_, boxes_;
};

}  // namespace frugal::models
