#include <cmath>
#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/given_path.h"
#include "apps/cli/grad_batch.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_run.h"
#include "apps/config/set_up_device.h"
#include "apps/config/stored_run.h"
#include "compress/policies/choice.h"
#include "compress/policies/policy_kind.h"
#include "core/random/random_streams.h"
#include "data/formats/safetensors_shards.h"
#include "models/state.h"
#include "ops/dense/copy.h"
#include "train/noise/gradient_probe.h"
#include "train/place_batch.h"
#include "train/run/weights.h"

namespace frugal::apps {
namespace {

void to_f64(Module& model, Batch& batch) {
  models::to_dtype(model, DType::f64);
  const CategoryScope scope(Category::input);
  const auto widen = [](Tensor& x) {
    if (x.defined() && is_floating(x.dtype())) x = ops::cast(x, DType::f64);
  };
  widen(batch.input);
  for (auto& [name, tensor] : batch.extras) widen(tensor);
}

}  // namespace

void grad_command(const GradArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  const Device device = set_up_computing_device(config.run, "computed");
  if (config.compression.policy == PolicyKind::budget || !config.compression.memory_budget.empty())
    throw ConfigError(
        "compression.memory_budget",
        "expected none for a single gradient, since a plan within a budget is for whole runs");
  if (arguments.f64 && device != kCpu)
    throw ConfigError("device", fmt::format("expected cpu with --f64, got {}", config.run.device));
  check_weights(arguments.weights, "--weights");
  must_be_there("--batch", arguments.batch);
  const auto weights = data::SafetensorsShards::open(arguments.weights);
  StepMemory memory;
  double loss_value = 0;
  try {
    Batch batch = read_grad_batch(arguments.batch, family_of(config.model));
    const BatchSpec spec = spec_of_batch(batch, weights, config);
    const train::RunRecipe recipe = run_recipe(config, spec);
    const TrainerOptions& options = recipe.options;
    const auto model = recipe.make_model(device);
    with_named_weights("", [&] { return load_weights(*model, weights); });
    if (arguments.f64) to_f64(*model, batch);
    const auto policy = make_policy(options.compression.choice, device, options.seed);
    const train::SingleGradient found =
        train::single_gradient(*options.task, *model, std::move(batch), policy.get(),
                               {0, streams::kDropout.rng(options.seed).state(),
                                options.label_smoothing, options.checkpointed_blocks});
    memory = found.memory;
    models::NamedTensors out = {{"loss", found.loss}};
    for (const auto& [name, value] : found.terms) out.emplace_back("loss/" + name, value);
    if (found.output.defined()) out.emplace_back("output", found.output);
    loss_value = out[0].second.item();
    CategoryScope copies(Category::workspace);
    for (const auto& p : model->parameters()) {
      FRUGAL_CHECK(p.parameter->grad().defined(), "[grad] {} got no gradient", p.name);
      out.emplace_back("grad/" + p.name, models::to_file_layout(p.parameter->grad(), p.layout));
    }
    for (const auto& b : model->buffers())
      out.emplace_back("buffer/" + b.name, to_device(*b.buffer, kCpu));
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

}  // namespace frugal::apps
