#include "apps/config/make_model.h"

#include <algorithm>

#include "apps/config/sequential_config.h"
#include "apps/config/value_named.h"
#include "autograd/record.h"
#include "core/random_streams.h"
#include "models/freeze.h"
#include "models/self_supervised/self_supervised.h"
#include "models/zoo/bert.h"
#include "models/zoo/densenet.h"
#include "models/zoo/dilated_resnet.h"
#include "models/zoo/dilation8.h"
#include "models/zoo/drn.h"
#include "models/zoo/faster_rcnn.h"
#include "models/zoo/gat.h"
#include "models/zoo/gcn.h"
#include "models/zoo/gcnii.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/hrnet.h"
#include "models/zoo/mlp.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/retinanet.h"
#include "models/zoo/sage.h"
#include "models/zoo/semantic_fpn.h"
#include "models/zoo/swin.h"
#include "models/zoo/unet.h"
#include "models/zoo/vgg.h"
#include "models/zoo/vit.h"
#include "train/metric_names.h"

namespace frugal::apps {
namespace {

using models::Init;
using ModelPtr = std::shared_ptr<Module>;
using ModelMaker = ModelPtr (*)(Init&, const ModelConfig&, const BatchSpec&);

template <class T, class U>
void take(T& value, const std::optional<U>& wanted) {
  if (wanted) value = *wanted;
}

// ---- images
// Errors (ConfigError): layers of no such network.
models::CifarResNetOptions cifar_resnet_options(const ModelConfig& config) {
  models::CifarResNetOptions options = models::cifar_resnet_options(config.name);
  take(options.width, config.width);
  if (!config.layers) return options;
  options.blocks = (*config.layers - 2) / 6;
  if (options.blocks < 1 || *config.layers != 6 * options.blocks + 2)
    throw ConfigError("model.layers", fmt::format("expected 6 n + 2 for {}, such as 20, got {}",
                                                  config.name, *config.layers));
  return options;
}

models::ResNetOptions resnet_options(const ModelConfig& config) {
  models::ResNetOptions options = models::resnet_options(config.name);
  take(options.width, config.width);
  try {
    if (config.layers) models::deepen(options, *config.layers);
  } catch (const Error& e) {
    const std::string what = e.what();
    throw ConfigError("model.layers", what.substr(what.find(' ') + 1));  // without "[resnet]"
  }
  return options;
}

ModelPtr make_cifar_resnet(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::CifarResNetOptions options = cifar_resnet_options(config);
  options.shortcut = value_named<models::Shortcut>(
      config.shortcut, {{"A", models::Shortcut::A}, {"B", models::Shortcut::B}});
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::CifarResNet>(init, options);
}

ModelPtr make_resnet(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::ResNetOptions options = resnet_options(config);
  options.stem = value_named<models::Stem>(
      config.stem, {{"imagenet", models::Stem::imagenet}, {"cifar", models::Stem::cifar}});
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::ResNet>(init, options);
}

ModelPtr make_vgg(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::VggOptions options = models::vgg_options(config.name);
  take(options.dropout, config.dropout);
  take(options.hidden, config.width);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Vgg>(init, options);
}

ModelPtr make_densenet(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::DenseNetOptions options = models::densenet_options(config.name);
  take(options.dropout, config.dropout);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::DenseNet>(init, options);
}

ModelPtr make_mlp(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::MlpOptions options;
  options.in_features = spec.sample.numel();
  options.hidden = config.hidden;
  take(options.dropout, config.dropout);
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Mlp>(init, options);
}

ModelPtr make_vit(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::VitOptions options = models::vit_options(config.name);
  take(options.layers, config.layers);
  take(options.hidden, config.width);
  take(options.heads, config.heads);
  take(options.mlp, config.feed_forward);
  take(options.dropout, config.dropout);
  take(options.attention_dropout, config.attention_dropout);
  take(options.stochastic_depth, config.stochastic_depth);
  options.image = spec.sample[0];
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Vit>(init, options);
}

ModelPtr make_swin(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::SwinOptions options = models::swin_options(config.name);
  take(options.dropout, config.dropout);
  take(options.attention_dropout, config.attention_dropout);
  take(options.stochastic_depth, config.stochastic_depth);
  take(options.window, config.window);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Swin>(init, options);
}

ModelPtr make_hrnet(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::HrNetOptions options = models::hrnet_options(config.name);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::HrNet>(init, options);
}

ModelPtr make_self_supervised(Init& init, const ModelConfig& config, const BatchSpec& spec);

ModelPtr make_dilated_resnet(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::DilatedResNetOptions options = models::dilated_resnet_options(config.name);
  take(options.width, config.width);
  take(options.dropout, config.dropout);
  take(options.auxiliary_dropout, config.dropout);
  options.auxiliary = config.aux_loss;
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::DilatedResNet>(init, options);
}

ModelPtr make_semantic_fpn(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::SemanticFpnOptions options = models::semantic_fpn_options(config.name);
  take(options.width, config.width);
  take(options.dropout, config.dropout);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::SemanticFpn>(init, options);
}

ModelPtr make_drn(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::DrnOptions options = models::drn_options(config.name);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Drn>(init, options);
}

ModelPtr make_dilation8(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::Dilation8Options options;
  take(options.hidden, config.width);
  take(options.dropout, config.dropout);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Dilation8>(init, options);
}

ModelPtr make_unet(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  constexpr int64_t kLeast = 16;  // four times halved
  if (spec.sample[0] < kLeast || spec.sample[1] < kLeast)
    throw ConfigError("model.name", fmt::format("expected samples of at least {} x {} for unet, "
                                                "got {}",
                                                kLeast, kLeast, spec.sample));
  models::UnetOptions options;
  take(options.width, config.width);
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Unet>(init, options);
}

template <class Options>
void set_detector(Options& options, const ModelConfig& config) {
  options.trunk = models::resnet_options(config.trunk);
  take(options.width, config.width);
  options.anchor_side = config.anchor_side;
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  using models::BoxLoss;
  if (config.box_loss)
    options.box_loss = value_named<BoxLoss>(
        *config.box_loss,
        {{"l1", BoxLoss::l1}, {"smooth_l1", BoxLoss::smooth_l1}, {"giou", BoxLoss::giou}});
}

ModelPtr make_retinanet(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::RetinaNetOptions options;
  set_detector(options, config);
  return std::make_shared<models::RetinaNet>(init, options);
}

ModelPtr make_faster_rcnn(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::FasterRcnnOptions options;
  set_detector(options, config);
  options.deterministic_sampling = config.deterministic_sampling;
  return std::make_shared<models::FasterRcnn>(init, options);
}

// ---- sequences
ModelPtr make_bert(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::BertOptions options = models::bert_options(config.name);
  take(options.layers, config.layers);
  take(options.hidden, config.width);
  take(options.heads, config.heads);
  take(options.intermediate, config.feed_forward);
  take(options.dropout, config.dropout);
  take(options.attention_dropout, config.attention_dropout);
  take(options.max_positions, config.max_positions);
  options.vocab_size = *config.vocab_size;
  options.num_classes = *config.num_classes;
  if (spec.target_of_each_token()) options.head = models::BertHead::masked_lm;
  return std::make_shared<models::Bert>(init, options);
}

ModelPtr make_gpt2(Init& init, const ModelConfig& config, const BatchSpec&) {
  models::Gpt2Options options = models::gpt2_options(config.name);
  take(options.layers, config.layers);
  take(options.hidden, config.width);
  take(options.heads, config.heads);
  take(options.inner, config.feed_forward);
  take(options.dropout, config.dropout);
  take(options.attention_dropout, config.attention_dropout);
  take(options.context_length, config.max_positions);
  options.vocab_size = *config.vocab_size;
  return std::make_shared<models::Gpt2>(init, options);
}

// ---- graphs
void set_common(models::GnnOptions& options, const ModelConfig& config, const BatchSpec& spec) {
  options.in_features = spec.sample[1];
  options.num_classes = *config.num_classes;
  take(options.hidden, config.width);
  take(options.layers, config.layers);
  take(options.dropout, config.dropout);
  options.batch_norm = config.batch_norm;
  options.residual = config.residual;
  using models::JumpingKnowledge;
  options.jk = value_named<JumpingKnowledge>(config.jump, {{"none", JumpingKnowledge::none},
                                                           {"cat", JumpingKnowledge::cat},
                                                           {"max", JumpingKnowledge::max}});
}

ModelPtr make_gcn(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::GnnOptions options;
  set_common(options, config, spec);
  take(options.input_dropout, config.input_dropout);
  return std::make_shared<models::Gcn>(init, options);
}

ModelPtr make_sage(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::SageOptions options;
  set_common(options, config, spec);
  take(options.input_dropout, config.input_dropout);
  options.aggregation = value_named<models::SageAggregation>(
      config.aggregation,
      {{"mean", models::SageAggregation::mean}, {"max", models::SageAggregation::max}});
  return std::make_shared<models::Sage>(init, options);
}

ModelPtr make_gat(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::GatOptions options;
  set_common(options, config, spec);
  take(options.input_dropout, config.input_dropout);
  take(options.heads, config.heads);
  take(options.out_heads, config.out_heads);
  take(options.attention_dropout, config.attention_dropout);
  take(options.slope, config.slope);
  return std::make_shared<models::Gat>(init, options);
}

ModelPtr make_gcnii(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  models::GcniiOptions options;
  set_common(options, config, spec);
  take(options.alpha, config.alpha);
  take(options.theta, config.theta);
  return std::make_shared<models::Gcnii>(init, options);
}

struct ModelRow {
  const char* name;
  Family family;
  ModelMaker make;
};
constexpr ModelRow kModels[] = {
    {"resnet20", Family::images, make_cifar_resnet},
    {"resnet32", Family::images, make_cifar_resnet},
    {"resnet44", Family::images, make_cifar_resnet},
    {"resnet56", Family::images, make_cifar_resnet},
    {"resnet110", Family::images, make_cifar_resnet},
    {"preact_resnet56", Family::images, make_cifar_resnet},
    {"resnet18", Family::images, make_resnet},
    {"resnet34", Family::images, make_resnet},
    {"resnet50", Family::images, make_resnet},
    {"resnet101", Family::images, make_resnet},
    {"resnet152", Family::images, make_resnet},
    {"wide_resnet50_2", Family::images, make_resnet},
    {"wide_resnet101_2", Family::images, make_resnet},
    {"vgg11", Family::images, make_vgg},
    {"vgg13", Family::images, make_vgg},
    {"vgg16", Family::images, make_vgg},
    {"vgg19", Family::images, make_vgg},
    {"vgg11_bn", Family::images, make_vgg},
    {"vgg13_bn", Family::images, make_vgg},
    {"vgg16_bn", Family::images, make_vgg},
    {"vgg19_bn", Family::images, make_vgg},
    {"densenet121", Family::images, make_densenet},
    {"densenet161", Family::images, make_densenet},
    {"densenet169", Family::images, make_densenet},
    {"densenet201", Family::images, make_densenet},
    {"vit_b_16", Family::images, make_vit},
    {"vit_b_32", Family::images, make_vit},
    {"vit_l_16", Family::images, make_vit},
    {"vit_l_32", Family::images, make_vit},
    {"vit_h_14", Family::images, make_vit},
    {"swin_t", Family::images, make_swin},
    {"swin_s", Family::images, make_swin},
    {"swin_b", Family::images, make_swin},
    {"fcn_resnet50", Family::segmentation, make_dilated_resnet},
    {"fcn_resnet101", Family::segmentation, make_dilated_resnet},
    {"deeplabv3_resnet50", Family::segmentation, make_dilated_resnet},
    {"deeplabv3_resnet101", Family::segmentation, make_dilated_resnet},
    {"fpn_resnet50", Family::segmentation, make_semantic_fpn},
    {"fpn_resnet101", Family::segmentation, make_semantic_fpn},
    {"drn_d_22", Family::segmentation, make_drn},
    {"drn_d_38", Family::segmentation, make_drn},
    {"dilation8", Family::segmentation, make_dilation8},
    {"hrnet_w18", Family::segmentation, make_hrnet},
    {"hrnet_w32", Family::segmentation, make_hrnet},
    {"hrnet_w48", Family::segmentation, make_hrnet},
    {"unet", Family::segmentation, make_unet},
    {"retinanet_resnet50_fpn", Family::detection, make_retinanet},
    {"fasterrcnn_resnet50_fpn", Family::detection, make_faster_rcnn},
    {"mlp", Family::images, make_mlp},
    {"simsiam", Family::images, make_self_supervised},
    {"byol", Family::images, make_self_supervised},
    {"moco_v2", Family::images, make_self_supervised},
    {"bert_tiny", Family::encoder, make_bert},
    {"bert_mini", Family::encoder, make_bert},
    {"bert_small", Family::encoder, make_bert},
    {"bert_medium", Family::encoder, make_bert},
    {"bert_base", Family::encoder, make_bert},
    {"bert_large", Family::encoder, make_bert},
    {"encoder", Family::encoder, make_bert},
    {"gpt2", Family::decoder, make_gpt2},
    {"gpt2_medium", Family::decoder, make_gpt2},
    {"gpt2_large", Family::decoder, make_gpt2},
    {"gpt2_xl", Family::decoder, make_gpt2},
    {"gcn", Family::graph, make_gcn},
    {"sage", Family::graph, make_sage},
    {"gat", Family::graph, make_gat},
    {"gcnii", Family::graph, make_gcnii},
    {kSequential, Family::images, make_sequential},  // family_of() may find another family
};

// The schema lets no other name through.
const ModelRow& model_row(const std::string& name) {
  for (const ModelRow& row : kModels)
    if (name == row.name) return row;
  throw ConfigError("model.name", fmt::format("expected a known model, got '{}'", name));
}

// The network behind whose features the projector stands.
ModelConfig trunk_of(const ModelConfig& model) {
  ModelConfig trunk = model;
  trunk.name = model.trunk;
  trunk.num_classes = 0;
  return trunk;
}

ModelPtr make_self_supervised(Init& init, const ModelConfig& config, const BatchSpec& spec) {
  const ModelConfig trunk = trunk_of(config);
  const auto make = [&](Init& at) { return model_row(trunk.name).make(at, trunk, spec); };
  // How many features the trunk gives shows a pass on meta.
  Init nowhere;
  nowhere.device = kMeta;
  const NoGrad no_grad;
  Context context;
  context.training = false;
  const Tensor sample =
      Tensor::empty({1, spec.sample[0], spec.sample[1], spec.sample[2]}, DType::f32, kMeta);
  const int64_t features = make(nowhere)->forward(Variable(sample), context).size(1);
  models::SelfSupervisedOptions options =
      models::published_options(models::self_supervision(config.name), features);
  take(options.projector, config.projector);
  take(options.predictor, config.predictor);
  take(options.momentum, config.momentum);
  take(options.queue, config.queue);
  take(options.temperature, config.temperature);
  return std::make_shared<models::SelfSupervised>(init, make, features, options);
}

bool reads(const ModelRow& row, const BatchSpec& spec) {
  const Family family = row.family;
  switch (spec.kind) {
    case BatchSpec::Kind::images:
      if (spec.has_boxes()) return family == Family::detection;
      return family == (spec.target_of_each_pixel() ? Family::segmentation : Family::images);
    case BatchSpec::Kind::rows:
      return row.make == make_mlp;
    case BatchSpec::Kind::graph:
      return family == Family::graph;
    case BatchSpec::Kind::sequences:
      return family == Family::encoder ||
             (family == Family::decoder && spec.target_of_each_token());
  }
  return false;
}

// Keys that only some networks read.
struct KeyRow {
  const char* key;
  std::vector<ModelMaker> makers;
};
const std::vector<KeyRow>& key_rows() {
  static const std::vector<ModelMaker> sequences = {make_bert, make_gpt2},
                                       transformers = {make_vit, make_bert, make_gpt2},
                                       graphs = {make_gcn, make_sage, make_gat, make_gcnii},
                                       resnets = {make_cifar_resnet, make_resnet},
                                       detectors = {make_retinanet, make_faster_rcnn};
  const auto with = [](std::vector<ModelMaker> some, const std::vector<ModelMaker>& others) {
    some.insert(some.end(), others.begin(), others.end());
    return some;
  };
  static const std::vector<KeyRow> rows = {
      {"modules", {make_sequential}},
      {"shortcut", {make_cifar_resnet}},
      {"stem", {make_resnet}},
      {"hidden", {make_mlp}},
      {"dropout", with({make_vgg, make_densenet, make_mlp, make_swin, make_dilated_resnet,
                        make_semantic_fpn, make_dilation8},
                       with(transformers, graphs))},
      {"attention_dropout", with({make_swin, make_gat}, transformers)},
      {"stochastic_depth", {make_vit, make_swin}},
      {"window", {make_swin}},
      {"layers", with(resnets, with(transformers, graphs))},
      {"width",
       with(with({make_vgg, make_unet, make_dilation8, make_dilated_resnet, make_semantic_fpn},
                 detectors),
            with(resnets, with(transformers, graphs)))},
      {"heads", with({make_gat}, transformers)},
      {"feed_forward", transformers},
      {"max_positions", sequences},
      {"vocab_size", sequences},
      {"batch_norm", graphs},
      {"residual", graphs},
      {"jump", graphs},
      {"input_dropout", {make_gcn, make_sage, make_gat}},
      {"alpha", {make_gcnii}},
      {"theta", {make_gcnii}},
      {"aggregation", {make_sage}},
      {"out_heads", {make_gat}},
      {"slope", {make_gat}},
      {"aux_loss", {make_dilated_resnet}},
      {"trunk", with({make_self_supervised}, detectors)},
      {"anchor_side", detectors},
      {"box_loss", detectors},
      {"deterministic_sampling", {make_faster_rcnn}},
      {"projector", {make_self_supervised}},
      {"predictor", {make_self_supervised}},
      {"momentum", {make_self_supervised}},
      {"queue", {make_self_supervised}},
      {"temperature", {make_self_supervised}},
      {"neighbours", {make_self_supervised}},
      // Not of the network's section: what layer-wise decay knows, and what has blocks to
      // recompute.
      {"layer_decay", with({make_cifar_resnet, make_resnet, make_swin}, transformers)},
      {"checkpointing", with(with({make_cifar_resnet, make_resnet, make_vgg, make_densenet,
                                   make_swin, make_dilated_resnet, make_semantic_fpn, make_drn},
                                  detectors),
                             transformers)},
  };
  return rows;
}

// Refuses what model.aggregation max cannot do: the maximum has no weights and no sparse form.
void check_maximum(const Config& config, const BatchSpec& spec) {
  const std::string& sampler = config.data.sampler;
  if (config.model.aggregation != "max") return;
  if (spec.is_sparse())
    throw ConfigError("data.sparse_features", "expected false with model.aggregation max");
  if (sampler == "random_walk" || sampler == "node" || sampler == "edge")
    throw ConfigError(
        "model.aggregation",
        fmt::format("expected mean with the data.sampler {}, which weights edges", sampler));
}

// Errors (ConfigError): model.layers of no such ResNet.
void check_depth(const ModelConfig& model) {
  if (is_self_supervised(model)) return check_depth(trunk_of(model));
  const ModelMaker make = model_row(model.name).make;
  if (make == make_cifar_resnet) cifar_resnet_options(model);
  if (make == make_resnet) resnet_options(model);
}

// Are there lists of layers for such data?
bool reads_modules(const BatchSpec& spec) {
  return spec.kind != BatchSpec::Kind::graph && !spec.target_of_each_pixel() && !spec.has_boxes();
}

std::string readers_of(const BatchSpec& spec) {
  std::vector<std::string> names;
  for (const ModelRow& row : kModels)
    if (reads(row, spec) || (row.name == std::string_view(kSequential) && reads_modules(spec)))
      names.emplace_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// A metric that counts pairs of classes knows those of the data. What data measure by themselves is
// not refused here, since a run may end without an evaluation.
void check_metric(const Config& config, const BatchSpec& spec) {
  const MetricName* const known = find_metric(config.train.metric);
  if (known == nullptr || !known->counts_pairs || spec.has_several_labels()) return;
  const bool tokens = spec.target_of_each_token();
  const int64_t outputs = tokens ? *config.model.vocab_size : *config.model.num_classes;
  if (outputs != spec.classes)
    throw ConfigError(tokens ? "model.vocab_size" : "model.num_classes",
                      fmt::format("expected {}, the classes of {}, with train.metric {}, got {}",
                                  spec.classes, config.data.name, known->name, outputs));
}

// What would contradict a network that follows another one and has no labels.
void check_self_supervised(const Config& config) {
  const std::string& name = config.model.name;
  const auto refuse = [&](const char* key, const std::string& why) {
    throw ConfigError(key, fmt::format("expected {} for {}", why, name));
  };
  if (!config.train.freeze.empty())
    refuse("train.freeze", "[], which is for fine-tuning the trunk afterwards,");
  if (config.train.label_smoothing > 0)
    refuse("train.label_smoothing", "0, because there are no labels,");
  if (config.train.patience > 0) refuse("train.patience", "0, because evaluations have no loss,");
  if (config.train.stop_patience > 0 && config.train.stop_metric != "metric")
    refuse("train.early_stop.metric", "metric, because evaluations have no loss,");
  if (config.optim.ema > 0) refuse("optim.ema", "0");
  if (config.run.cuda_graphs) refuse("cuda_graphs", "false");
  if (config.data.batch_size == 1) refuse("data.batch_size", "at least 2, for batch norm,");
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : kModels) names.emplace_back(row.name);
  return names;
}

Family family_of(const ModelConfig& model) {
  return model.name == kSequential ? family_of_modules(model.modules)
                                   : model_row(model.name).family;
}

bool is_decoder(const Config& config) { return family_of(config.model) == Family::decoder; }

bool is_self_supervised(const ModelConfig& model) {
  return model.name != kSequential && model_row(model.name).make == make_self_supervised;
}

std::vector<std::string> trunk_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : kModels)
    if (row.make == make_cifar_resnet || row.make == make_resnet) names.emplace_back(row.name);
  return names;
}

bool network_reads(const ModelConfig& model, const std::string& key) {
  const ModelMaker make = model_row(model.name).make;
  if (make == make_sequential) {
    if (key == "checkpointing") return modules_have_blocks(model.modules);
    return key == "modules" || (key == "vocab_size" && family_of(model) != Family::images);
  }
  const bool views = make == make_self_supervised;
  if (views && key == "predictor") return model.name != "moco_v2";
  if (views && key == "momentum") return model.name != "simsiam";
  if (views && (key == "queue" || key == "temperature")) return model.name == "moco_v2";
  for (const auto& [name, makers] : key_rows())
    if (key == name && std::find(makers.begin(), makers.end(), make) != makers.end()) return true;
  if (views && key != "layer_decay") return network_reads(trunk_of(model), key);
  for (const auto& [name, makers] : key_rows())
    if (key == name) return std::find(makers.begin(), makers.end(), make) != makers.end();
  FRUGAL_ASSERT(false);  // a key of the table without a row here
  return false;
}

ModelSizes model_sizes(const ModelConfig& model) {
  if (is_self_supervised(model)) return model_sizes(trunk_of(model));
  const ModelMaker make = model_row(model.name).make;
  ModelSizes sizes;
  if (make == make_cifar_resnet) {
    sizes.least_layers = 8;
    sizes.layers_step = 6;
  } else if (make == make_resnet) {
    const models::ResNetOptions options = models::resnet_options(model.name);
    sizes.least_layers = models::layers_of(options);
    sizes.layers_step = models::layers_of_block(options);
  } else if (make == make_vit) {
    const models::VitOptions options = models::vit_options(model.name);
    sizes.width_step = model.heads.value_or(options.heads);
    sizes.side_step = options.patch;
  } else if (make == make_swin) {
    sizes.side_step = 32;  // 4 of a patch, and 2 of each of the three reductions
  } else if (make == make_bert) {
    sizes.width_step = model.heads.value_or(models::bert_options(model.name).heads);
  } else if (make == make_gpt2) {
    sizes.width_step = model.heads.value_or(models::gpt2_options(model.name).heads);
  } else if (make == make_gat) {
    sizes.width_step = model.heads.value_or(models::GatOptions().heads);
  }
  return sizes;
}

void resolve_model(Config& config, const BatchSpec& spec) {
  ModelConfig& model = config.model;
  const std::string& data = config.data.name;
  const bool sequential = model.name == kSequential && reads_modules(spec);
  if (!sequential && !reads(model_row(model.name), spec))
    throw ConfigError("model.name",
                      fmt::format("expected a network for the data {}, one of {}; got "
                                  "{}",
                                  data, readers_of(spec), model.name));
  check_maximum(config, spec);
  check_depth(model);
  if (spec.has_boxes() && model_row(model.trunk).make != make_resnet)
    throw ConfigError(
        "model.trunk",
        fmt::format("expected one of torchvision's ResNets, such as resnet50, for {}, "
                    "got {}",
                    model.name, model.trunk));
  if (!model.num_classes) model.num_classes = spec.classes;
  if (*model.num_classes < spec.classes)
    throw ConfigError("model.num_classes",
                      fmt::format("expected at least {}, the classes of {}, got {}", spec.classes,
                                  data, *model.num_classes));
  const bool several = spec.has_several_labels();
  if ((several || spec.has_values()) && *model.num_classes != spec.classes)
    throw ConfigError("model.num_classes",
                      fmt::format("expected {}, the {} of {}, got {}", spec.classes,
                                  several ? "labels" : "values", data, *model.num_classes));
  if ((several || spec.has_values()) && config.train.label_smoothing > 0)
    throw ConfigError(
        "train.label_smoothing",
        fmt::format("expected 0 for {}, whose targets are {}, got {}", data,
                    several ? "several labels" : "values", config.train.label_smoothing));
  if (spec.has_boxes() && config.train.label_smoothing > 0)
    throw ConfigError("train.label_smoothing",
                      fmt::format("expected 0 for {}, whose losses have no labels to smooth, got "
                                  "{}",
                                  data, config.train.label_smoothing));
  if (spec.kind == BatchSpec::Kind::images) {
    if (!model.in_channels) model.in_channels = spec.sample[2];
    if (*model.in_channels != spec.sample[2])
      throw ConfigError("model.in_channels", fmt::format("expected {}, the channels of {}, got {}",
                                                         spec.sample[2], data, *model.in_channels));
  }
  if (spec.kind == BatchSpec::Kind::sequences) {
    if (!model.vocab_size) model.vocab_size = spec.vocabulary;
    if (*model.vocab_size < spec.vocabulary)
      throw ConfigError("model.vocab_size",
                        fmt::format("expected at least {}, the tokens of {}, got {}",
                                    spec.vocabulary, data, *model.vocab_size));
    if (model.max_positions && *model.max_positions < spec.sample[0])
      throw ConfigError("model.max_positions",
                        fmt::format("expected at least data.max_length, {}, got {}", spec.sample[0],
                                    *model.max_positions));
  }
  check_metric(config, spec);
  if (sequential) check_sequential(model, spec);
  if (is_self_supervised(model)) check_self_supervised(config);
}

ModelPtr make_model(const Config& config, const BatchSpec& spec, Device device) {
  Init init;
  init.rng = streams::kInitialWeights.rng(static_cast<uint64_t>(config.run.seed));
  init.device = device;
  const ModelPtr model = model_row(config.model.name).make(init, config.model, spec);
  if (config.run.precision == "bf16") model->set_activations(DType::bf16);
  try {
    freeze(*model, config.train.freeze, {config.train.freeze_statistics});
  } catch (const Error& e) {
    const std::string what = e.what();
    throw ConfigError("train.freeze", what.substr(what.find(' ') + 1));  // without "[freeze]"
  }
  return model;
}

}  // namespace frugal::apps
