// torchvision's RetinaNet: a pyramid, and two heads of four convolutions that all levels share.
// Ref: Lin et al. 2017 (Focal Loss for Dense Object Detection).
#pragma once
#include "models/detection/anchors.h"
#include "models/detection/detector.h"
#include "models/detection/trunk.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct RetinaNetOptions {
  ResNetOptions trunk = resnet_options("resnet50");
  int64_t width = 256;       // channels of the pyramid and of the heads
  int64_t anchor_side = 32;  // side at the finest level, in pixels; doubled from level to level
  int64_t in_channels = 3;
  int64_t num_classes = 91;        // with the background
  BoxLoss box_loss = BoxLoss::l1;  // smooth_l1 has a beta of 1
  double least_score = 0.05;       // what is found has a higher score
  double most_overlap = 0.5;       // a box that overlaps a better one of its class more is left out
  int64_t candidates = 1000;       // most boxes of a level before suppression
  int64_t most_found = 300;        // most objects of a picture

  static Published<RetinaNetOptions> published() { return {{"retinanet_resnet50_fpn", {}}}; }
  static std::vector<Option<RetinaNetOptions>> list() {
    return {{keys::kTrunk,
             [](RetinaNetOptions& options, const Value& name) {
               options.trunk = trunk_options(name.text());
             },
             "resnet50"},
            {keys::kWidth, &RetinaNetOptions::width},
            {keys::kAnchorSide, &RetinaNetOptions::anchor_side},
            {keys::kBoxLoss, &RetinaNetOptions::box_loss},
            {keys::kInChannels, &RetinaNetOptions::in_channels},
            {keys::kNumClasses, &RetinaNetOptions::num_classes}};
  }
};

// forward(): [N, H, W, C] -> [N, A, num_classes + 4], the logits and codes of all anchors.
// losses(): classification (focal), bbox_regression (box_loss); both divided by the matched anchors
// of a picture and averaged over pictures.
class RetinaNet : public Detector {
 public:
  RetinaNet(Init& init, const RetinaNetOptions& options);
  Variable forward(Variable x, Context& context) override;
  NamedVariables losses(Variable images, const DetectionTargets& targets, Context& context,
                        Search* search = nullptr) override;
  std::vector<Detections> detect(Variable images, const Tensor& sizes, Context& context) override;
  int64_t classes() const override { return options_.num_classes; }
  std::string head_prefix() override { return "head.classification_head.cls_logits."; }

 private:
  // What the heads say of one level.
  struct Outputs {
    Variable logits;  // [N, A, num_classes]
    Variable codes;   // [N, A, 4]
  };
  struct Head {
    std::vector<std::shared_ptr<FilledConv2d>> convolutions;
    std::shared_ptr<FilledConv2d> last;
    Variable forward(Variable x, Context& context) const;
  };
  Head make_head(Init& init, const std::string& name, const std::string& last, int64_t outputs,
                 double bias);
  // What each head says of one map of the pyramid.
  Variable logits_of(Variable map, Context& context) const;
  Variable codes_of(Variable map, Context& context) const;
  // What the heads say of all maps. `grids` becomes the extents of the maps.
  std::vector<Outputs> outputs(Variable x, Context& context, std::vector<GridSize>& grids);
  // What is found in `levels`, with `anchors` on the host.
  std::vector<Detections> found_in(const std::vector<Outputs>& levels, const Tensor& anchors,
                                   const Tensor& sizes) const;

  RetinaNetOptions options_;
  std::vector<AnchorLevel> anchors_;
  std::shared_ptr<Pyramid> backbone_;
  Head classification_, regression_;
};

}  // namespace frugal::models
