#include <cstdio>

#include "apps/commands.h"
#include "apps/make_policy.h"
#include "apps/makers.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "apps/training_step.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "data/safetensors.h"
#include "models/state.h"
#include "ops/copy.h"

namespace frugal::apps {
namespace {

// [N, C, H, W] in files, [N, H, W, C] here.
Tensor to_channels_last(const Tensor& input) {
  CategoryScope scope(Category::input);
  return ops::clone(input.dim() == 4 ? input.permute({0, 2, 3, 1}) : input);
}

// Where the classifier's weight is: the last 2-D one of the file.
int64_t classes_in(const data::SafetensorsFile& weights) {
  int64_t classes = 0;
  for (const std::string& name : weights.names()) {
    const Shape& shape = weights.info(name).shape;
    if (shape.dim() == 2) classes = shape[0];
  }
  FRUGAL_CHECK(classes > 0, "[grad] expected a classifier's weight [classes, features] in {}",
               weights.path());
  return classes;
}

struct GradBatch {
  Tensor input, target;  // target undefined: none
};

GradBatch read_batch(const std::string& path) {
  const auto file = data::SafetensorsFile::open(path);
  FRUGAL_CHECK(file.contains("input"), "[grad] expected a tensor 'input' in {}", path);
  for (const std::string& name : file.names())
    FRUGAL_CHECK(name == "input" || name == "target",
                 "[grad] expected only 'input' and 'target' in {}, got '{}'", path, name);
  CategoryScope scope(Category::input);
  GradBatch batch;
  batch.input = to_channels_last(file.read("input"));
  FRUGAL_CHECK(
      batch.input.dtype() == DType::f32 && (batch.input.dim() == 4 || batch.input.dim() == 2),
      "[grad] expected 'input' to be [N, C, H, W] or [N, F] f32, got {}", describe(batch.input));
  if (!file.contains("target")) return batch;
  batch.target = file.read("target");
  FRUGAL_CHECK(batch.target.dtype() == DType::i64 && batch.target.dim() == 1 &&
                   batch.target.size(0) == batch.input.size(0),
               "[grad] expected 'target' to be [{}] i64, got {}", batch.input.size(0),
               describe(batch.target));
  return batch;
}

}  // namespace

void grad_command(const GradArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  const Device device = set_up_device(config.run);
  if (device.type == DeviceType::meta)
    throw ConfigError("device", "expected cpu: nothing can be computed on meta");
  if (config.compression.policy == "budget" || !config.compression.memory_budget.empty())
    throw ConfigError(
        "compression.policy",
        "expected gact, actnn or acgc for a single gradient, got budget, which plans whole runs");
  const auto weights = data::SafetensorsFile::open(arguments.weights);
  StepMemory memory;
  double loss_value = 0;
  try {
    GradBatch batch = read_batch(arguments.batch);
    if (!config.model.num_classes) config.model.num_classes = classes_in(weights);
    if (!config.model.in_channels) config.model.in_channels = batch.input.shape().back();
    Shape image;
    for (int axis = 1; axis < batch.input.dim(); ++axis) image.push_back(batch.input.size(axis));
    const auto model = make_model(config, {image, 0}, device);
    models::load_state_dict(*model, weights.read_all());
    const auto policy = make_policy(config.compression, static_cast<uint64_t>(config.run.seed));
    Rng rng(static_cast<uint64_t>(config.run.seed));
    Context context;
    context.rng = &rng;
    context.checkpointing = config.train.checkpointing;
    models::NamedTensors out;
    Variable loss;
    begin_peak(device);
    begin_step(0);
    {
      PolicyScope scope(policy.get());
      Variable output = model->forward(Variable(std::move(batch.input)), context);
      if (batch.target.defined()) {
        CrossEntropyOptions options;
        options.label_smoothing = config.train.label_smoothing;
        loss = cross_entropy(output, batch.target, options);
      } else {
        loss = sum(output);
      }
      CategoryScope copies(Category::workspace);
      out.emplace_back("loss", ops::clone(loss.value()));
      out.emplace_back("output", ops::clone(output.value()));
    }
    batch = {};
    measure_saved(device, memory);
    backward(loss);
    end_peak(device, memory);
    loss_value = out[0].second.item();
    CategoryScope copies(Category::workspace);
    for (const auto& p : model->parameters()) {
      FRUGAL_CHECK(p.parameter->grad().defined(), "[grad] {} got no gradient", p.name);
      out.emplace_back("grad/" + p.name, models::to_file_layout(p.parameter->grad(), p.layout));
    }
    for (const auto& b : model->buffers()) out.emplace_back("buffer/" + b.name, *b.buffer);
    data::write_safetensors(arguments.out, out, {{"format", "pt"}});
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
  if (arguments.json)
    std::printf("%s\n",
                Json({{"loss", loss_value}, {"memory", memory_json(memory)}}).dump(2).c_str());
  else
    std::printf("loss %.6f  activations %s (%s packed)  peak %s\n", loss_value,
                readable_bytes(memory.saved()).c_str(), readable_bytes(memory.packed).c_str(),
                readable_bytes(memory.peak).c_str());
}

void inspect_command(const std::string& path, bool json) {
  const auto file = data::SafetensorsFile::open(path);
  Json tensors = Json::array(), metadata = Json::object();
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "bytes"}};
  int64_t bytes = 0, elements = 0;
  for (const std::string& name : file.names()) {
    const data::SafetensorsInfo& info = file.info(name);
    const std::string dtype(name_of(info.dtype));
    bytes += info.end - info.begin;
    elements += info.shape.numel();
    tensors.push_back({{"name", name},
                       {"dtype", dtype},
                       {"shape", std::vector<int64_t>(info.shape.begin(), info.shape.end())},
                       {"bytes", info.end - info.begin}});
    rows.push_back({name, dtype, info.shape.str(), std::to_string(info.end - info.begin)});
  }
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  if (json) {
    const Json document = {{"file", path},
                           {"tensors", tensors},
                           {"metadata", metadata},
                           {"total_bytes", bytes},
                           {"total_elements", elements}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf("%s", table(rows).c_str());
  std::printf("%zu tensors, %lld elements, %s\n", file.names().size(),
              static_cast<long long>(elements), readable_bytes(bytes).c_str());
  for (const auto& [key, value] : file.metadata())
    std::printf("metadata %s: %s\n", key.c_str(), value.c_str());
}

}  // namespace frugal::apps
