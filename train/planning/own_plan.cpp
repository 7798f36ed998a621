#include "train/planning/own_plan.h"

#include <algorithm>

#include "train/option_error.h"
#include "train/planning/bytes.h"

namespace frugal::train {
namespace {

constexpr const char* kBudget = "budget.memory";

Batch first_batch(data::BatchSource& batches) {
  const data::LoaderState before = batches.state();
  batches.seek({before.epoch, 0});
  std::optional<Batch> batch = batches.next();
  batches.seek(before);
  FRUGAL_CHECK(batch.has_value(), "[plan] expected a source with batches, got one without");
  return std::move(*batch);
}

// What the planner must know of a batch.
struct Shapes {
  struct One {
    std::string name;
    Shape shape;
    DType dtype;
    bool by_sample;  // its first axis is the samples
  };
  Shapes(const Batch& batch, const Task& task)
      : samples(batch.input.size(0)), floats(batch.floats), held(batch.held) {
    const Batch one = asks(batch, task) ? task.part(batch, 0, 1) : Batch();
    const auto add = [&](const std::string& name, const Tensor& tensor, const Tensor& of_one) {
      if (!tensor.defined()) return;
      const bool fits = tensor.dim() > 0 && tensor.size(0) == samples;
      const bool is_cut = !of_one.defined() || of_one.dim() == 0 || of_one.size(0) == 1;
      all.push_back({name, tensor.shape(), tensor.dtype(), fits && is_cut});
    };
    add("", batch.input, one.input);
    add(" target", batch.target, one.target);
    add(" samples", batch.samples, one.samples);
    for (const auto& [name, tensor] : batch.extras)
      add(name, tensor, find_tensor(one.extras, name));
  }
  // The task knows which tensors have a row for each sample: another one may have as many rows by
  // chance. A task's own way to cut a batch is asked only where it can cut it.
  static bool asks(const Batch& batch, const Task& task) {
    return batch.input.size(0) > 1 && task.is_divisible(batch) &&
           std::all_of(batch.extras.begin(), batch.extras.end(),
                       [](const auto& extra) { return extra.second.dim() > 0; });
  }
  Batch of(int64_t count, Device device) const {
    const CategoryScope scope(Category::input);
    Batch batch;
    batch.floats = floats;
    batch.held = held;
    for (const One& one : all) {
      Shape shape = one.shape;
      if (one.by_sample) shape[0] = count;
      Tensor tensor = Tensor::empty(shape, one.dtype, device);
      if (one.name.empty())
        batch.input = std::move(tensor);
      else if (one.name == " target")
        batch.target = std::move(tensor);
      else if (one.name == " samples")
        batch.samples = std::move(tensor);
      else
        batch.extras.emplace_back(one.name, std::move(tensor));
    }
    return batch;
  }
  int64_t samples;
  FloatTargets floats;
  bool held;
  std::vector<One> all;
};

}  // namespace

PlannerOptions read_off(const TrainerOptions& options, Device device, data::BatchSource& batches) {
  const CompressionOptions& compression = options.compression;
  PlannerOptions planner;
  MetaRun& run = planner.run;
  run.task = options.task;
  const bool is_graph = options.task->spec().kind == BatchSpec::Kind::graph;
  int64_t label_bytes = 0;
  {
    const Batch example = first_batch(batches);
    if (example.target.defined()) label_bytes = example.target.nbytes();
    planner.batch = example.input.size(0);
    run.shape = [shapes = Shapes(example, *options.task), is_graph,
                 extras = is_graph ? example.extras : NamedTensors()](int64_t samples,
                                                                      Device there) {
      if (!is_graph) return shapes.of(samples, there);
      // A graph is made of the edges of its batch, so these keep their values.
      Batch graph = shapes.of(shapes.samples, there);
      graph.extras = extras;
      return graph;
    };
  }
  run.ahead = [count = static_cast<size_t>(batches.ahead())](int64_t samples) {
    return std::vector<int64_t>(count, samples);
  };
  if (compression.tracking)
    run.tracked = [tracking = *compression.tracking](int64_t samples) {
      return tracking.other != nullptr ? samples : tracking.held(samples);
    };
  run.steps = [steps = steps_of(options, batches.batches())] { return steps; };
  run.has_blocks = !is_graph;
  // A step takes no more batches than an epoch has.
  run.gradient_accumulation =
      std::clamp<int64_t>(batches.batches(), 1, options.gradient_accumulation);
  run.label_smoothing = options.label_smoothing;
  run.clip_norm = options.clip_norm;
  run.in_backward = options.in_backward;
  run.on_cuda = device.type == DeviceType::cuda;
  run.counts_edges = !run.on_cuda;
  const int64_t evaluations =
      (options.validation != nullptr ? 1 : 0) + (options.test != nullptr ? 1 : 0);
  if (is_graph) run.data_bytes = evaluations * label_bytes;
  planner.choice = compression.choice;
  planner.seed = options.seed;
  if (const std::string memory = compression.choice.memory_budget(); !memory.empty())
    planner.budget = parse_budget(memory, kBudget);
  planner.device = device;
  planner.test_batch = options.test != nullptr ? first_batch(*options.test).input.size(0) : 1;
  planner.checkpointed_blocks = options.checkpointed_blocks;
  return planner;
}

std::shared_ptr<Planner> plan_of_own(const TrainerOptions& options, Module& model,
                                     const Optimizer& optimizer, data::BatchSource& batches) {
  const std::string memory = options.compression.choice.memory_budget();
  parse_budget(memory, kBudget);
  const auto& ranks = options.ranks.communicator;
  if (ranks != nullptr && ranks->size() > 1)
    throw OptionError(
        kBudget, fmt::format("expected none with {} ranks in an embedded program", ranks->size()));
  PlannerOptions planner = read_off(options, model.device(), batches);
  planner.run.own_model = &model;
  planner.run.own_optimizer = &optimizer;
  auto made = std::make_shared<Planner>(planner);
  if (made->settings().test_batch < planner.test_batch)
    throw OptionError(
        kBudget, fmt::format("expected test batches of at most {} samples, since an evaluation of "
                             "more takes more than {}, got batches of {}",
                             made->settings().test_batch, memory, planner.test_batch));
  return made;
}

}  // namespace frugal::train
