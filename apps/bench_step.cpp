#include <chrono>
#include <cstdio>
#include <map>

#include "apps/commands.h"
#include "apps/make_policy.h"
#include "apps/makers.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "apps/training_step.h"
#include "core/parallel.h"

namespace frugal::apps {
namespace {

struct Variant {
  const char* name;
  const char* level;
  bool recipes;
};
constexpr Variant kVariants[] = {{"L0", "L0", false},
                                 {"L0 + recipes", "L0", true},
                                 {"L1 + recipes", "L1", true},
                                 {"L1.2 + recipes", "L1.2", true}};

constexpr double kRate = 1e-3;  // of the updates, which only have to take their time

struct Measured {
  std::unique_ptr<SavePolicy> policy;
  std::vector<double> milliseconds;
  StepMemory memory;
};

// The networks and batches of the README's figures.
Json workload(const std::string& name) {
  static const std::map<std::string, const char*> known = {
      {"r20", R"({"model": {"name": "resnet20", "shortcut": "B"},
                  "data": {"name": "random", "batch_size": 128, "shape": [32, 32, 3]}})"},
      {"r18", R"({"model": {"name": "resnet18", "stem": "cifar"},
                  "data": {"name": "random", "batch_size": 32, "shape": [32, 32, 3]}})"},
      {"r50", R"({"model": {"name": "resnet50"},
                  "data": {"name": "random", "batch_size": 4, "shape": [224, 224, 3], "classes": 1000}})"}};
  const auto found = known.find(name);
  if (found == known.end())
    throw ConfigError("", fmt::format("--workload: expected one of r18, r20, r50, got '{}'", name));
  return Json::parse(found->second);
}

Batch first_batch(const Config& config, Device device) {
  if (device.type == DeviceType::meta) {  // shapes are enough
    CategoryScope scope(Category::input);
    Shape shape{config.data.batch_size};
    for (int64_t extent : image_spec(config.data).shape) shape.push_back(extent);
    return {Tensor::empty(shape, DType::f32, device),
            Tensor::empty({config.data.batch_size}, DType::i64, device)};
  }
  data::Loader loader(make_dataset(config, true), loader_options(config, true));
  return *loader.next();
}

}  // namespace

void bench_step(const BenchArguments& arguments) {
  Config config;
  if (!arguments.config.empty()) {
    config = load_config(arguments.config, arguments.sets);
  } else {
    Json document = workload(arguments.workload.empty() ? "r20" : arguments.workload);
    for (const std::string& set : arguments.sets) apply_set(document, set);
    config = parse_config(document);
  }
  resolve(config);
  const Device device = set_up_device(config.run);
  const bool runs = device.type != DeviceType::meta;
  const int64_t repeats = !runs ? 1 : arguments.repeats > 0 ? arguments.repeats : 5;
  std::vector<Measured> measured;
  int64_t parameter_count = 0;
  try {
    const auto model = make_model(config, image_spec(config.data).shape, device);
    for (const auto& p : model->parameters()) parameter_count += p.parameter->value().numel();
    const auto optimizer = make_optimizer(config.optim, *model);
    const Batch batch = first_batch(config, device);
    Rng rng(static_cast<uint64_t>(config.run.seed));
    Context context;
    context.rng = &rng;
    context.checkpointing = config.train.checkpointing;
    for (const Variant& variant : kVariants) {
      config.compression.level = variant.level;
      config.compression.recipes = variant.recipes;
      measured.push_back(
          {make_policy(config.compression, static_cast<uint64_t>(config.run.seed)), {}, {}});
    }
    // Alternating, so that a slow moment of the machine meets every variant; the first round warms
    // up, and makes the optimizer's state.
    uint64_t step = 0;
    for (int64_t round = -1; round < repeats; ++round) {
      for (Measured& m : measured) {
        const auto begin = std::chrono::steady_clock::now();
        begin_peak(device);
        model->zero_grad();
        begin_step(step++);
        UpdateInBackward update(*optimizer, kRate);
        StepOptions options;
        if (config.optim.in_backward) options.leaf_done = update.leaf_done();
        BatchResult result = forward_backward(*model, batch, context, m.policy.get(), options);
        optimizer->step(kRate);
        end_peak(device, result.memory);
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - begin;
        if (round < 0) continue;
        m.milliseconds.push_back(took.count());
        m.memory.raise(result.memory);
      }
    }
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
  Json variants = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"", "step", "time", "activations", "less", "packed", "peak", "less"}};
  const Measured& base = measured[0];
  for (size_t i = 0; i < measured.size(); ++i) {
    const Measured& m = measured[i];
    auto over = [](double a, double b) { return b > 0 ? a / b : 0; };
    const double ms = median(m.milliseconds);
    const double slower = runs ? over(ms, median(base.milliseconds)) : 0;
    const double less =
        over(static_cast<double>(base.memory.saved()), static_cast<double>(m.memory.saved()));
    const double lower =
        over(static_cast<double>(base.memory.peak), static_cast<double>(m.memory.peak));
    variants.push_back({{"name", kVariants[i].name},
                        {"level", kVariants[i].level},
                        {"recipes", kVariants[i].recipes},
                        {"step_ms_median", runs ? Json(ms) : Json(nullptr)},
                        {"time_over_L0", runs ? Json(slower) : Json(nullptr)},
                        {"L0_activations_over_these", less},
                        {"L0_peak_over_this", lower},
                        {"memory", memory_json(m.memory)}});
    rows.push_back({kVariants[i].name, runs ? fmt::format("{:.1f} ms", ms) : "-",
                    runs ? fmt::format("{:.2f}x", slower) : "-", readable_bytes(m.memory.saved()),
                    fmt::format("{:.2f}x", less), readable_bytes(m.memory.packed),
                    readable_bytes(m.memory.peak), fmt::format("{:.2f}x", lower)});
  }
  const Shape image = image_spec(config.data).shape;
  if (arguments.json) {
    const Json document = {{"model", config.model.name},
                           {"parameters", parameter_count},
                           {"batch_size", config.data.batch_size},
                           {"image", std::vector<int64_t>(image.begin(), image.end())},
                           {"threads", num_threads()},
                           {"repeats", repeats},
                           {"variants", variants}};
    std::printf("%s\n", document.dump(2).c_str());
    return;
  }
  std::printf("%s, batch %lld of %s, %d threads\n%s", config.model.name.c_str(),
              static_cast<long long>(config.data.batch_size), image.str().c_str(), num_threads(),
              table(rows).c_str());
}

}  // namespace frugal::apps
