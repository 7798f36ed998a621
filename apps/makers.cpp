#include "apps/makers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "apps/planner.h"
#include "apps/random_dataset.h"
#include "compress/actnn_policy.h"
#include "compress/levels.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/subset.h"
#include "data/transforms.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/resnet_cifar.h"
#include "optim/sgd.h"

namespace frugal::apps {
namespace {

// ---- models
using ModelMaker = std::shared_ptr<Module> (*)(models::Init&, const ModelConfig&, const Shape&);

std::shared_ptr<Module> make_cifar_resnet(models::Init& init, const ModelConfig& config,
                                          const Shape&) {
  models::CifarResNetOptions options = models::cifar_resnet_options(config.name);
  options.shortcut = config.shortcut == "A" ? models::Shortcut::A : models::Shortcut::B;
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::CifarResNet>(init, options);
}

std::shared_ptr<Module> make_resnet(models::Init& init, const ModelConfig& config, const Shape&) {
  models::ResNetOptions options = models::resnet_options(config.name);
  options.stem = config.stem == "cifar" ? models::Stem::cifar : models::Stem::imagenet;
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::ResNet>(init, options);
}

std::shared_ptr<Module> make_mlp(models::Init& init, const ModelConfig& config,
                                 const Shape& image) {
  models::MlpOptions options;
  options.in_features = image.numel();
  options.hidden = config.hidden;
  options.dropout = config.dropout;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::Mlp>(init, options);
}

struct ModelRow {
  const char* name;
  ModelMaker make;
};
constexpr ModelRow kModels[] = {
    {"resnet20", make_cifar_resnet},   {"resnet32", make_cifar_resnet},
    {"resnet44", make_cifar_resnet},   {"resnet56", make_cifar_resnet},
    {"resnet110", make_cifar_resnet},  {"preact_resnet56", make_cifar_resnet},
    {"resnet18", make_resnet},         {"resnet34", make_resnet},
    {"resnet50", make_resnet},         {"resnet101", make_resnet},
    {"resnet152", make_resnet},        {"wide_resnet50_2", make_resnet},
    {"wide_resnet101_2", make_resnet}, {"mlp", make_mlp},
};

// ---- data
struct DataRow {
  const char* name;
  ImageSpec spec;
  const char* folder;  // where a distribution's package puts it, if any
  std::vector<double> mean, std;
  DatasetPtr (*open)(const std::string& folder, bool train);
};

const std::vector<DataRow>& data_rows() {
  using data::Cifar;
  static const std::vector<DataRow> rows = {
      {"fashion_mnist",
       {{28, 28, 1}, 10},
       "/usr/share/datasets/fashion-mnist",
       {0.2860},
       {0.3530},
       [](const std::string& folder, bool train) { return data::open_idx(folder, train); }},
      {"mnist",
       {{28, 28, 1}, 10},
       nullptr,
       {0.1307},
       {0.3081},
       [](const std::string& folder, bool train) { return data::open_idx(folder, train); }},
      {"cifar10",
       {{32, 32, 3}, 10},
       nullptr,
       {0.4914, 0.4822, 0.4465},
       {0.2470, 0.2435, 0.2616},
       [](const std::string& folder, bool train) {
         return data::open_cifar(folder, Cifar::c10, train);
       }},
      {"cifar100",
       {{32, 32, 3}, 100},
       nullptr,
       {0.5071, 0.4865, 0.4409},
       {0.2673, 0.2564, 0.2762},
       [](const std::string& folder, bool train) {
         return data::open_cifar(folder, Cifar::c100, train);
       }},
      {"random", {{32, 32, 3}, 10}, nullptr, {}, {}, nullptr},
  };
  return rows;
}

// The schema lets no other name through.
const DataRow& data_row(const std::string& name) {
  for (const DataRow& row : data_rows())
    if (row.name == name) return row;
  throw ConfigError("data.name", fmt::format("expected a known dataset, got '{}'", name));
}

int64_t or_all(int64_t wanted, int64_t all) { return wanted > 0 ? wanted : all; }

constexpr int64_t kRandomTrain = 2048, kRandomTest = 512;

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : kModels) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DataRow& row : data_rows()) names.emplace_back(row.name);
  return names;
}

ImageSpec image_spec(const DataConfig& config) {
  ImageSpec spec = data_row(config.name).spec;
  if (config.name == "random") {
    if (config.shape) spec.shape = Shape(std::span<const int64_t>(*config.shape));
    if (config.classes) spec.classes = *config.classes;
  }
  return spec;
}

std::vector<std::string> level_names() {
  std::vector<std::string> names;
  for (const compress::Level& level : compress::levels()) names.emplace_back(level.name);
  for (const char* actnn : {"L4", "L5"}) names.emplace_back(actnn);
  return names;
}

namespace {

// What a level asks of other keys.
struct LevelNeeds {
  bool adaptive = false, offload = false, checkpointing = false;
  double max_average = 16;
  const char* averages = "L2 to L3";  // the levels that have one
};
LevelNeeds needs_of(const CompressionConfig& config) {
  try {
    if (config.policy == "actnn") {
      const compress::ActnnLevel& level = compress::parse_actnn_level(config.level);
      return {level.mixed, level.offload, false, 8, "L3 to L5"};
    }
    const compress::Level& level = compress::parse_level(config.level);
    return {level.adaptive, level.offload, level.checkpointing};
  } catch (const Error& error) {
    throw ConfigError("compression.level", error.what());
  }
}

}  // namespace

void resolve(Config& config) {
  const ImageSpec spec = image_spec(config.data);
  const DataRow& row = data_row(config.data.name);
  if (config.data.name != "random" && (config.data.shape || config.data.classes))
    throw ConfigError(config.data.shape ? "data.shape" : "data.classes",
                      fmt::format("expected null for '{}', whose files say it", row.name));
  ModelConfig& model = config.model;
  if (!model.num_classes) model.num_classes = spec.classes;
  if (*model.num_classes < spec.classes)
    throw ConfigError("model.num_classes",
                      fmt::format("expected at least {}, the classes of {}, got {}", spec.classes,
                                  row.name, *model.num_classes));
  if (!model.in_channels) model.in_channels = spec.shape[2];
  if (*model.in_channels != spec.shape[2])
    throw ConfigError("model.in_channels",
                      fmt::format("expected {}, the channels of {}, got {}", spec.shape[2],
                                  row.name, *model.in_channels));
  const LevelNeeds level = needs_of(config.compression);
  if (level.checkpointing) config.train.checkpointing = true;
  if (level.offload && config.compression.offload.empty())
    throw ConfigError("compression.offload",
                      fmt::format("expected a folder, to which level {} moves activations",
                                  config.compression.level));
  const double average = config.compression.average_bits;
  if (average != 0 && (!level.adaptive || average < 1 || average > level.max_average))
    throw ConfigError(
        "compression.average_bits",
        fmt::format("expected 0, or 1 to {} with a level of {}, got {} with {}", level.max_average,
                    level.averages, average, config.compression.level));
  if (!config.compression.memory_budget.empty()) {
    config.compression.policy = "budget";
    parse_budget(config.compression.memory_budget, "compression.memory_budget");
    if (config.compression.entropy && !config.compression.offload.empty())
      throw ConfigError("compression.entropy",
                        "expected false with a budget and a folder for offload");
  } else if (config.compression.policy == "budget") {
    throw ConfigError("compression.memory_budget", "expected a budget for the policy 'budget'");
  }
  if (level.adaptive && config.compression.bits != 0)
    throw ConfigError("compression.bits",
                      fmt::format("expected 0 with level {}, whose average_bits may be set",
                                  config.compression.level));
  if (config.optim.in_backward) {
    const char* other = config.optim.clip_norm > 0               ? "optim.clip_norm"
                        : config.train.gradient_accumulation > 1 ? "train.gradient_accumulation"
                        : config.train.checkpointing             ? "train.checkpointing"
                                                                 : nullptr;
    if (other != nullptr)
      throw ConfigError("optim.in_backward",
                        fmt::format("expected false with {}, which needs all gradients or "
                                    "parameters until backward has ended",
                                    other));
  }
  if (!config.data.dir && row.open != nullptr) {
    if (const char* folder = std::getenv("FRUGAL_DATA"); folder != nullptr && *folder != '\0')
      config.data.dir = folder;
    else if (row.folder != nullptr)
      config.data.dir = row.folder;
    else
      throw ConfigError(
          "data.dir", fmt::format("expected the folder of {}, here or in $FRUGAL_DATA", row.name));
  }
}

std::shared_ptr<Module> make_model(const Config& config, const Shape& image, Device device) {
  models::Init init;
  init.rng = Rng(static_cast<uint64_t>(config.run.seed));
  init.device = device;
  for (const ModelRow& row : kModels)
    if (row.name == config.model.name) return row.make(init, config.model, image);
  throw ConfigError("model.name",
                    fmt::format("expected a known model, got '{}'", config.model.name));
}

DatasetPtr make_dataset(const Config& config, bool train) {
  const DataConfig& c = config.data;
  const DataRow& row = data_row(c.name);
  const int64_t limit = train ? c.train_samples : c.test_samples;
  DatasetPtr dataset;
  if (row.open == nullptr) {
    const ImageSpec spec = image_spec(c);
    dataset = std::make_shared<RandomDataset>(
        spec.shape, spec.classes, or_all(limit, train ? kRandomTrain : kRandomTest),
        static_cast<uint64_t>(config.run.seed), train ? 1 : 2);
  } else {
    dataset = row.open(*c.dir, train);
    if (limit > 0) dataset = data::first(dataset, limit);
  }
  if (train && c.crop_padding > 0)
    dataset = std::make_shared<data::PadCrop>(dataset, c.crop_padding);
  if (train && c.flip) dataset = std::make_shared<data::HorizontalFlip>(dataset);
  if (c.normalize && !row.mean.empty())
    dataset = std::make_shared<data::Normalize>(dataset, row.mean, row.std);
  // After normalization, so that the blank is the mean.
  if (train && c.cutout > 0) dataset = std::make_shared<data::Cutout>(dataset, c.cutout);
  return dataset;
}

data::LoaderOptions loader_options(const Config& config, bool train) {
  data::LoaderOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch_size;
  options.shuffle = train;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.threads = static_cast<int>(config.data.workers);
  return options;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, Module& model) {
  std::vector<std::pair<std::string, Variable>> parameters;
  for (const auto& p : model.parameters()) parameters.emplace_back(p.name, *p.parameter);
  optim::SgdOptions options;
  options.momentum = config.momentum;
  options.nesterov = config.nesterov;
  return std::make_unique<optim::Sgd>(
      optim::decay_groups(parameters, config.weight_decay, !config.no_decay_norms), options);
}

optim::SchedulePtr make_schedule(const Config& config, int64_t steps_per_epoch, int64_t steps) {
  const ScheduleConfig& c = config.schedule;
  const double lr = config.optim.lr;
  const auto per_epoch = static_cast<double>(steps_per_epoch);
  if (c.name == "one_cycle") {
    optim::OneCycleOptions options;
    options.max_lr = lr;
    options.total = steps;
    options.rising = c.peak_at;
    if (c.min_lr > 0) options.final_division = lr / options.initial_division / c.min_lr;
    return optim::one_cycle_schedule(options);
  }
  const int64_t warm = c.warmup_steps + std::llround(c.warmup_epochs * per_epoch);
  optim::SchedulePtr rest;
  if (c.name == "constant") rest = optim::constant_schedule(lr);
  if (c.name == "cosine")
    rest = optim::cosine_schedule(lr, c.min_lr, std::max<int64_t>(steps - warm, 1));
  if (c.name == "step") {
    // In steps of the whole run, while the rest counts from the end of the warm-up.
    std::vector<int64_t> milestones;
    for (double epoch : c.milestones)
      milestones.push_back(std::max<int64_t>(std::llround(epoch * per_epoch) - warm, 0));
    rest = optim::step_schedule(lr, milestones, c.gamma);
  }
  return warm > 0 ? optim::warmup(rest, warm) : rest;
}

Device set_up_device(const RunConfig& config) {
  const Device device = Device::parse(config.device);
  if (device.type == DeviceType::cuda && !kHasCuda)
    throw ConfigError("device", "this frugal was built without CUDA; expected cpu");
  if (config.threads > 0) set_num_threads(static_cast<int>(config.threads));
  allocator(device).set_limit(config.memory_limit);
  return device;
}

}  // namespace frugal::apps
