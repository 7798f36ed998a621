#include "models/zoo/dilated_resnet.h"

#include "models/activations.h"
#include "models/zoo/segmentation_parts.h"

namespace frugal::models {
namespace {

constexpr double kPyramidDropout = 0.5;
constexpr int64_t kAsppChannels = 256;  // channels of each part of the pyramid, and of its output

// The mean of the image behind a convolution, a norm and a relu, for each place of the image.
class ImagePooling : public Module {
 public:
  ImagePooling(Init& init, int64_t in, int64_t out)
      : conv_(register_module("1", std::make_shared<Conv2d>(init, in, out, 1))),
        norm_(register_module("2", std::make_shared<BatchNorm2d>(init, out))) {}
  Variable forward(Variable x, Context& context) override {
    const int64_t height = x.size(1), width = x.size(2);
    const Variable mean = conv_->forward(adaptive_avg_pool2d(x, 1, 1), context);
    return resized(norm_->forward_relu(mean, context), height, width);
  }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
};

// Convolutions of several dilations beside each other, and the mean of the image.
class AtrousPyramid : public Module {
 public:
  AtrousPyramid(Init& init, int64_t in, double dropout) {
    for (const int64_t dilation : {1, 12, 24, 36}) {
      const WindowOptions window{.kernel = dilation == 1 ? 1 : 3, .dilation = dilation};
      add_part(conv_norm_relu(init, in, kAsppChannels, window));
    }
    add_part(std::make_shared<ImagePooling>(init, in, kAsppChannels));
    const auto count = static_cast<int64_t>(parts_.size());
    project_ = std::make_shared<Sequential>();
    append_conv_norm_relu(*project_, init, count * kAsppChannels, kAsppChannels, {.kernel = 1});
    project_->append(Dropout(dropout));
    project_->set_blocks({});
    register_module("project", project_);
  }
  Variable forward(Variable x, Context& context) override {
    Variables parts;
    for (const auto& part : parts_) parts.push_back(part->forward(x, context));
    x = {};
    Variable all = concat(parts, -1);
    parts.clear();
    return project_->forward(std::move(all), context);
  }

 private:
  void add_part(const std::shared_ptr<Module>& part) {
    parts_.push_back(register_module(fmt::format("convs.{}", parts_.size()), part));
  }
  std::vector<std::shared_ptr<Module>> parts_;
  std::shared_ptr<Sequential> project_;
};

std::shared_ptr<Sequential> fcn_head(Init& init, int64_t in, int64_t classes, double dropout) {
  auto head = std::make_shared<Sequential>();
  append_conv_norm_relu(*head, init, in, in / 4, {});
  head->append(Dropout(dropout));
  head->append(std::make_shared<Conv2d>(init, in / 4, classes, 1, Conv2dOptions{}, true));
  head->set_blocks({});
  return head;
}

std::shared_ptr<Sequential> deeplab_head(Init& init, int64_t in, int64_t classes, double dropout) {
  auto head = std::make_shared<Sequential>();
  head->append(std::make_shared<AtrousPyramid>(init, in, dropout));
  append_conv_norm_relu(*head, init, kAsppChannels, kAsppChannels, {});
  head->append(std::make_shared<Conv2d>(init, kAsppChannels, classes, 1, Conv2dOptions{}, true));
  head->set_blocks({});
  return head;
}

}  // namespace

const Published<DilatedResNetOptions>& DilatedResNetOptions::published() {
  constexpr std::array<int64_t, 4> k50 = {3, 4, 6, 3}, k101 = {3, 4, 23, 3};
  static const Published<DilatedResNetOptions> all = {
      {"fcn_resnet50", {.head = DilatedHead::fcn, .depths = k50}},
      {"fcn_resnet101", {.head = DilatedHead::fcn, .depths = k101}},
      {"deeplabv3_resnet50",
       {.head = DilatedHead::deeplabv3, .depths = k50, .dropout = kPyramidDropout}},
      {"deeplabv3_resnet101",
       {.head = DilatedHead::deeplabv3, .depths = k101, .dropout = kPyramidDropout}},
  };
  return all;
}

DilatedResNetOptions dilated_resnet_options(const std::string& name) {
  return find_published(DilatedResNetOptions::published(), "dilated_resnet", name);
}

DilatedResNet::DilatedResNet(Init& init, const DilatedResNetOptions& options) {
  ResNetTrunkOptions trunk;
  trunk.depths = options.depths;
  trunk.width = options.width;
  trunk.in_channels = options.in_channels;
  trunk.dilated = {false, true, true};
  backbone_ = register_module("backbone", std::make_shared<ResNetTrunk>(init, trunk));
  classifier_ =
      options.head == DilatedHead::fcn
          ? fcn_head(init, backbone_->channels(3), options.num_classes, options.dropout)
          : deeplab_head(init, backbone_->channels(3), options.num_classes, options.dropout);
  register_module("classifier", classifier_);
  if (options.auxiliary)
    auxiliary_ = register_module(
        "aux_classifier",
        fcn_head(init, backbone_->channels(2), options.num_classes, options.auxiliary_dropout));
}

ResizedModule::Small DilatedResNet::before_resize(Variable x, Context& context) {
  const int64_t height = x.size(1), width = x.size(2);
  const bool both = auxiliary_ != nullptr && context.training;
  Variables features = backbone_->stages(std::move(x), context, {false, false, both, true});
  Small small{classifier_->forward(std::move(features[3]), context), height, width};
  if (both) small.auxiliary = auxiliary_->forward(std::move(features[2]), context);
  return small;
}

}  // namespace frugal::models
