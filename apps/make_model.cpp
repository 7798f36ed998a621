#include "apps/make_model.h"

#include "models/mlp.h"
#include "models/resnet.h"
#include "models/resnet_cifar.h"

namespace frugal::apps {
namespace {

using ModelMaker = std::shared_ptr<Module> (*)(models::Init&, const ModelConfig&, const BatchSpec&);

std::shared_ptr<Module> make_cifar_resnet(models::Init& init, const ModelConfig& config,
                                          const BatchSpec&) {
  models::CifarResNetOptions options = models::cifar_resnet_options(config.name);
  options.shortcut = config.shortcut == "A" ? models::Shortcut::A : models::Shortcut::B;
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::CifarResNet>(init, options);
}

std::shared_ptr<Module> make_resnet(models::Init& init, const ModelConfig& config,
                                    const BatchSpec&) {
  models::ResNetOptions options = models::resnet_options(config.name);
  options.stem = config.stem == "cifar" ? models::Stem::cifar : models::Stem::imagenet;
  options.in_channels = *config.in_channels;
  options.num_classes = *config.num_classes;
  return std::make_shared<models::ResNet>(init, options);
}

std::shared_ptr<Module> make_mlp(models::Init& init, const ModelConfig& config,
                                 const BatchSpec& spec) {
  models::MlpOptions options;
  options.in_features = spec.sample.numel();
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

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelRow& row : kModels) names.emplace_back(row.name);
  return names;
}

std::shared_ptr<Module> make_model(const Config& config, const BatchSpec& spec, Device device) {
  models::Init init;
  init.rng = Rng(static_cast<uint64_t>(config.run.seed));
  init.device = device;
  for (const ModelRow& row : kModels)
    if (row.name == config.model.name) return row.make(init, config.model, spec);
  throw ConfigError("model.name",
                    fmt::format("expected a known model, got '{}'", config.model.name));
}

}  // namespace frugal::apps
