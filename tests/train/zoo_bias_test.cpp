// Every family of networks: gradients have no bias at 2, 3 and 4 bits, and steps run in bf16.
#include <doctest/doctest.h>

#include "models/adapters/adapters.h"
#include "models/init.h"
#include "models/zoo/bert.h"
#include "models/zoo/decoder.h"
#include "models/zoo/densenet.h"
#include "models/zoo/dilated_resnet.h"
#include "models/zoo/drn.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/retinanet.h"
#include "models/zoo/swin.h"
#include "models/zoo/unet.h"
#include "models/zoo/vgg.h"
#include "models/zoo/vit.h"
#include "tests/error_bounds.h"
#include "tests/train/tiny_run.h"
#include "train/noise/gradient_study.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kZooBatch = 8, kZooClasses = 4, kZooSide = 32, kZooTokens = 24, kZooWords = 60;

// Batches of random values, each another one, as the task shapes them.
class RandomBatches final : public data::BatchSource {
 public:
  explicit RandomBatches(TaskPtr task) : task_(std::move(task)) {}
  std::optional<Batch> next() override {
    const CategoryScope scope(Category::input);
    Batch batch = task_->shape(kZooBatch, kCpu);
    const uint64_t number = static_cast<uint64_t>(state_.next_batch++);
    fill(batch.input, number, kZooWords);
    if (batch.target.defined()) fill(batch.target, number + 1000, kZooClasses);
    int64_t boxes = 0;
    for (auto& [name, tensor] : batch.extras) {
      if (name == "boxes") boxes = tensor.size(0);
      fill(tensor, number + 2000, kZooClasses);
    }
    for (auto& [name, tensor] : batch.extras) {
      for (int64_t i = 0; name == "boxes" && i < 4 * boxes; ++i)
        tensor.mut<float>()[i] = static_cast<float>(i % 4 < 2 ? 4 + i % 7 : 20 + i % 11);
      for (int64_t i = 0; name == "counts" && i < kZooBatch; ++i)
        tensor.mut<int64_t>()[i] = boxes / kZooBatch;
      for (int64_t i = 0; (name == "sizes" || name == "originals") && i < 2 * kZooBatch; ++i)
        tensor.mut<int64_t>()[i] = kZooSide;
    }
    return batch;
  }
  int64_t batches() const override { return 1 << 20; }
  int64_t samples() const override { return batches() * kZooBatch; }
  data::LoaderState state() const override { return state_; }
  void seek(const data::LoaderState& state) override { state_ = state; }

 private:
  static void fill(const Tensor& x, uint64_t key, int64_t below) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto at = static_cast<uint64_t>(i);
      if (is_floating(x.dtype()))
        Tensor(x).mut<float>()[i] = normal({key, 5}, at);
      else
        Tensor(x).mut<int64_t>()[i] =
            static_cast<int64_t>(uniform_int({key, 6}, at, static_cast<uint64_t>(below)));
    }
  }
  TaskPtr task_;
  data::LoaderState state_;
};

struct FamilyRun {
  std::string name;
  RunRecipe recipe;
};

template <class M, class Options>
FamilyRun family(const std::string& name, const Options& options, const BatchSpec& spec) {
  RunRecipe recipe = tiny_run(name, {}, spec);
  recipe.make_model = [options](Device device) {
    models::Init init;
    init.device = device;
    const auto module = std::make_shared<M>(init, options);
    // A head that starts at 0 would hide all that is behind it.
    for (const auto& p : module->parameters())
      if (p.name == "heads.head.weight")
        p.parameter->set_value(models::normal(init, p.parameter->shape(), 0.1));
    return module;
  };
  recipe.open_train = [task = recipe.options.task] {
    return std::make_unique<RandomBatches>(task);
  };
  return {name, recipe};
}

// A decoder whose layers are frozen beside their adapters, and rebuild outputs of products.
FamilyRun adapted(const std::string& name, const std::vector<std::string>& targets,
                  models::RebuiltProducts rebuilt, const BatchSpec& spec) {
  models::DecoderOptions options;
  options.layers = 3;
  options.hidden = 32;
  options.heads = 4;
  options.kv_heads = 2;
  options.vocab_size = kZooWords;
  options.context_length = kZooTokens;
  options.rebuilt = rebuilt;
  FamilyRun run = family<models::Decoder>("decoder", options, spec);
  run.name = name;
  run.recipe.make_model = [make = run.recipe.make_model, targets](Device device) {
    const auto module = make(device);
    models::Init init;
    init.device = device;
    models::AdapterOptions adapters;
    adapters.type = models::AdapterType::lora;
    adapters.targets = targets;
    adapters.is_pattern = targets.front() == "all-linear";
    models::add_adapters(*module, init, adapters);
    // Weights of the usual size: a decoder's first ones are so small that scores tell nothing.
    for (const auto& p : module->parameters())
      if (p.parameter->shape().dim() == 2)
        p.parameter->set_value(models::normal(init, p.parameter->shape(), 0.15));
    return module;
  };
  return run;
}

FamilyRun graph_family(const std::string& name, models::Options options) {
  options["layers"] = 3;
  options["width"] = 16;
  return {name, tiny_run(name, options, TinyGraph{.nodes = 300, .edges = 900})};
}

std::vector<FamilyRun> families() {
  using namespace frugal::models;
  BatchSpec images{{kZooSide, kZooSide, 3}, kZooClasses}, pixels = images, boxes = images,
                                                          views = images;
  pixels.target = BatchSpec::Target::class_of_pixel;
  boxes.target = BatchSpec::Target::boxes;
  views.target = BatchSpec::Target::views;
  BatchSpec text{{kZooTokens}, kZooClasses, BatchSpec::Kind::sequences};
  text.vocabulary = kZooWords;
  BatchSpec tokens = text;
  tokens.classes = kZooWords;
  tokens.target = BatchSpec::Target::class_of_token;

  CifarResNetOptions resnet20 = cifar_resnet_options("resnet20");
  ResNetOptions resnet18 = resnet_options("resnet18");
  resnet18.stem = Stem::cifar;
  resnet18.depths = {1, 1, 1, 1};
  resnet18.width = 8;
  VggOptions vgg = vgg_options("vgg11_bn");
  vgg.width = 8;
  vgg.hidden = 32;
  vgg.dropout = 0;
  DenseNetOptions densenet;
  densenet.depths = {2, 2, 2, 2};
  densenet.growth = 8;
  VitOptions vit{4, 2, 2, 32, 64, kZooSide, 3, kZooClasses};
  SwinOptions swin;
  swin.width = 16;
  swin.depths = {2, 2, 1, 1};
  swin.heads = {1, 2, 2, 4};
  swin.window = 4;
  swin.stochastic_depth = 0;
  UnetOptions unet;
  unet.width = 8;
  DilatedResNetOptions deeplab = dilated_resnet_options("deeplabv3_resnet50");
  deeplab.depths = {1, 1, 1, 1};
  deeplab.width = 8;
  RetinaNetOptions retinanet;
  retinanet.trunk = resnet_options("resnet18");
  retinanet.trunk.depths = {1, 1, 1, 1};
  retinanet.trunk.width = 8;
  retinanet.width = 16;
  retinanet.anchor_side = 8;
  BertOptions bert{2, 32, 2};
  bert.vocab_size = kZooWords;
  bert.dropout = bert.attention_dropout = 0;
  Gpt2Options gpt{2, 32, 2, kZooWords, kZooTokens};
  gpt.dropout = gpt.attention_dropout = 0;
  for (auto* classes : {&resnet20.num_classes, &resnet18.num_classes, &vgg.num_classes,
                        &densenet.num_classes, &swin.num_classes, &unet.num_classes,
                        &deeplab.num_classes, &retinanet.num_classes, &bert.num_classes})
    *classes = kZooClasses;
  return {family<CifarResNet>("resnet20", resnet20, images),
          family<ResNet>("resnet18", resnet18, images),
          family<Vgg>("vgg11_bn", vgg, images),
          family<DenseNet>("densenet121", densenet, images),
          family<Vit>("vit_b_16", vit, images),
          family<Swin>("swin_t", swin, images),
          family<Unet>("unet", unet, pixels),
          family<DilatedResNet>("deeplabv3_resnet50", deeplab, pixels),
          family<RetinaNet>("retinanet_resnet50_fpn", retinanet, boxes),
          family<Bert>("bert_tiny", bert, text),
          family<Gpt2>("gpt2", gpt, tokens),
          adapted("decoder with adapters", {"all-linear"}, models::RebuiltProducts::all, tokens),
          adapted("decoder with adapters of q and v", {"q_proj", "v_proj"},
                  models::RebuiltProducts::all, tokens),
          graph_family("gcn", {{"batch_norm", true}, {"dropout", 0}}),
          graph_family("sage", {{"batch_norm", true}, {"dropout", 0}}),
          graph_family("gat", {{"heads", 2}, {"dropout", 0}, {"attention_dropout", 0}}),
          graph_family("gcnii", {{"dropout", 0}})};
}

}  // namespace

TEST_CASE("gradients have no bias at 2, 3 and 4 bits, in every family of networks") {
  constexpr int64_t kMinibatches = 8, kDraws = 24;
  for (const FamilyRun& each : families()) {
    CAPTURE(each.name);
    GradientStudy study(each.recipe);
    study.begin(kMinibatches);
    const auto found = [&](int bits, compress::Rounding rounding, int64_t draws) {
      const auto policy = compress::make_policy(
          compress::bits(bits, {.min_elements = 256, .rounding = rounding}), kCpu, 1);
      return study.measure(*policy, draws);
    };
    double coarsest = 0;  // the variance at 2 bits
    for (const int bits : {2, 3, 4}) {
      const LayeredErrors errors = found(bits, compress::Rounding::dithered, kDraws);
      const double bias = errors.squared_bias.value, variance = errors.rounding.value;
      const double z = bias / errors.squared_bias.error, share = bias / errors.unit();
      CAPTURE(bits);
      CAPTURE(z);
      CAPTURE(share);
      CAPTURE(variance / errors.unit());
      CHECK(variance > 0);
      if (bits == 2) coarsest = variance;
      CHECK((z < 3 || share < 0.001));
    }
    // Rounding to nearest is biased, and this study sees it.
    const LayeredErrors nearest = found(2, compress::Rounding::nearest, GradientNoise::kGroups);
    CHECK(nearest.squared_bias.value > coarsest / 16);
    CHECK(nearest.squared_bias.value > 3 * nearest.squared_bias.error);
  }
}

TEST_CASE("every family of networks trains in bf16, with and without codes") {
  // The losses of three steps.
  const auto losses = [](RunRecipe recipe, DType dtype, int bits) {
    recipe.make_model = [make = recipe.make_model, dtype](Device device) {
      std::shared_ptr<Module> model = make(device);
      model->set_activations(dtype);
      return model;
    };
    recipe.lr = 0.001;
    recipe.options.compression.choice = compress::bits(bits, {.min_elements = 256});
    recipe.options.steps = 3;
    recipe.options.log_interval = 1;
    std::vector<double> found;
    Run run(recipe);
    Trainer& trainer = run.trainer([&](TrainerOptions& options) {
      options.on_step = [&](const StepReport& step) {
        found.push_back(step.loss);
        return true;
      };
    });
    CHECK(trainer.run());
    return found;
  };
  std::vector<FamilyRun> all = families();
  models::DrnOptions drn = models::drn_options("drn_d_22");
  drn.depths.fill(1);
  drn.num_classes = kZooClasses;
  BatchSpec pixels{{kZooSide, kZooSide, 3}, kZooClasses};
  pixels.target = BatchSpec::Target::class_of_pixel;
  all.push_back(family<models::Drn>("drn_d_22", drn, pixels));
  for (const FamilyRun& each : all) {
    CAPTURE(each.name);
    const std::vector<double> expected = losses(each.recipe, DType::f32, 0);
    for (const int bits : {0, 4}) {
      CAPTURE(bits);
      const std::vector<double> got = losses(each.recipe, DType::bf16, bits);
      REQUIRE(got.size() == 3);
      // The loss is a mean over rows of what some tens of layers have rounded.
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(std::abs(got[i] - expected[i]) <=
              frugal_test::rounding_bound(32, DType::bf16) * std::max(1.0, std::abs(expected[i])));
    }
  }
}
