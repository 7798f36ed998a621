#include "models/zoo/hrnet.h"

#include <array>

#include "models/activations.h"
#include "models/zoo/residual_blocks.h"

namespace frugal::models {
namespace {

constexpr ConvInit kHrNetInit = ConvInit::kaiming_fan_out;
constexpr int64_t kStem = 64, kFirstStage = 256;
constexpr int64_t kBlocks = 4;  // blocks of layer1, and of each branch of a module
constexpr std::array<int64_t, 3> kModules = {1, 4, 3};  // modules of stages 2, 3 and 4

// A 3x3 or 1x1 convolution, its norm and, if wanted, a relu.
std::shared_ptr<Sequential> conv_norm(Init& init, int64_t in, int64_t out, int64_t kernel,
                                      int64_t stride, bool relu) {
  auto all = std::make_shared<Sequential>();
  all->append(conv_same(init, in, out, kernel, stride, kHrNetInit));
  all->append(std::make_shared<BatchNorm2d>(init, out));
  if (relu) all->append(std::make_shared<Relu>());
  return all;
}

std::shared_ptr<Sequential> within(const std::shared_ptr<Sequential>& one) {
  auto all = std::make_shared<Sequential>();
  all->append(one);
  return all;
}

Variable enlarged(const Variable& x, const Variable& like) {
  if (x.size(1) == like.size(1) && x.size(2) == like.size(2)) return x;
  return interpolate(x, like.size(1), like.size(2), {Interpolation::bilinear, false});
}

// Branches of several resolutions, each the half of the one before, and their sums: each output is
// the relu of the sum of all branches at its resolution.
class HrModule : public Module {
 public:
  HrModule(Init& init, const std::vector<int64_t>& channels) {
    for (size_t i = 0; i < channels.size(); ++i) {
      int64_t width = channels[i];
      branches_.push_back(
          register_module(fmt::format("branches.{}", i),
                          residual_stage<BasicBlock>(init, width, width, kBlocks, 1, channels[i])));
    }
    fuse_.resize(channels.size());
    for (size_t to = 0; to < channels.size(); ++to)
      for (size_t from = 0; from < channels.size(); ++from)
        fuse_[to].push_back(to == from ? nullptr
                                       : register_module(fmt::format("fuse_layers.{}.{}", to, from),
                                                         path(init, channels, from, to)));
  }

  Variable forward(Variable x, Context& context) override {
    return forward(Variables{std::move(x)}, context).front();
  }

  Variables forward(Variables x, Context& context) {
    for (size_t i = 0; i < branches_.size(); ++i)
      x[i] = branches_[i]->forward(std::move(x[i]), context);
    Variables sums;
    for (size_t to = 0; to < x.size(); ++to) {
      Variable sum;
      for (size_t from = 0; from < x.size(); ++from) {
        const Variable term =
            from == to ? x[from] : enlarged(fuse_[to][from]->forward(x[from], context), x[to]);
        sum = from == 0 ? term : add(sum, term);
      }
      sums.push_back(relu(sum));
    }
    return sums;
  }

 private:
  // What a branch goes through on its way to the sum of another one. Smaller images are enlarged
  // behind it.
  static std::shared_ptr<Sequential> path(Init& init, const std::vector<int64_t>& channels,
                                          size_t from, size_t to) {
    if (from > to) return conv_norm(init, channels[from], channels[to], 1, 1, false);
    auto steps = std::make_shared<Sequential>();
    for (size_t i = from; i < to; ++i) {
      const bool last = i + 1 == to;
      steps->append(
          conv_norm(init, channels[from], last ? channels[to] : channels[from], 3, 2, !last));
    }
    return steps;
  }

  std::vector<std::shared_ptr<Sequential>> branches_;
  std::vector<std::vector<std::shared_ptr<Sequential>>> fuse_;
};

}  // namespace

const Published<HrNetOptions>& HrNetOptions::published() {
  static const Published<HrNetOptions> all = {
      {"hrnet_w18", {18}},
      {"hrnet_w32", {32}},
      {"hrnet_w48", {48}},
  };
  return all;
}

HrNetOptions hrnet_options(const std::string& name) {
  return find_published(HrNetOptions::published(), "hrnet", name);
}

HrNet::HrNet(Init& init, const HrNetOptions& options) {
  conv1_ = register_module("conv1", conv_same(init, options.in_channels, kStem, 3, 2, kHrNetInit));
  bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(init, kStem));
  conv2_ = register_module("conv2", conv_same(init, kStem, kStem, 3, 2, kHrNetInit));
  bn2_ = register_module("bn2", std::make_shared<BatchNorm2d>(init, kStem));
  int64_t last = kStem;
  layer1_ = register_module("layer1",
                            residual_stage<Bottleneck>(init, last, kFirstStage, kBlocks, 1, kStem));
  std::vector<int64_t> channels = {options.width};
  int64_t all = options.width;
  for (size_t s = 0; s < kModules.size(); ++s) {
    Stage stage;
    stage.transitions.resize(s + 2);
    channels.push_back(2 * channels.back());
    all += channels.back();
    const std::string name = fmt::format("transition{}.", s + 1);
    if (s == 0)
      stage.transitions[0] =
          register_module(name + "0", conv_norm(init, last, channels[0], 3, 1, true));
    stage.transitions[s + 1] = register_module(
        name + std::to_string(s + 1), within(conv_norm(init, last, channels[s + 1], 3, 2, true)));
    last = channels[s + 1];
    for (int64_t m = 0; m < kModules[s]; ++m)
      stage.modules.push_back(register_module(fmt::format("stage{}.{}", s + 2, m),
                                              std::make_shared<HrModule>(init, channels)));
    stages_.push_back(std::move(stage));
  }
  last_layer_ = std::make_shared<Sequential>();
  last_layer_->append(
      std::make_shared<Conv2d>(init, all, all, 1, Conv2dOptions{}, true, kHrNetInit));
  last_layer_->append(std::make_shared<BatchNorm2d>(init, all));
  last_layer_->append(std::make_shared<Relu>());
  last_layer_->append(std::make_shared<Conv2d>(init, all, options.num_classes, 1, Conv2dOptions{},
                                               true, kHrNetInit));
  register_module("last_layer", last_layer_);
}

ResizedModule::Small HrNet::before_resize(Variable x, Context& context) {
  const int64_t height = x.size(1), width = x.size(2);
  x = bn1_->forward_relu(conv1_->forward(std::move(x), context), context);
  x = bn2_->forward_relu(conv2_->forward(x, context), context);
  Variables branches = {layer1_->forward(std::move(x), context)};
  for (const Stage& stage : stages_) {
    const Variable last = branches.back();
    branches.resize(stage.transitions.size());
    for (size_t i = 0; i < branches.size(); ++i)
      if (stage.transitions[i] != nullptr)
        branches[i] = stage.transitions[i]->forward(last, context);
    for (const auto& module : stage.modules)
      branches = std::static_pointer_cast<HrModule>(module)->forward(std::move(branches), context);
  }
  for (size_t i = 1; i < branches.size(); ++i) branches[i] = enlarged(branches[i], branches[0]);
  Variable all = concat(branches, -1);
  branches.clear();  // as large as `all` together
  return {last_layer_->forward(std::move(all), context), height, width};
}

}  // namespace frugal::models
