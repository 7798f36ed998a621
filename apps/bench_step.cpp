#include <chrono>
#include <cstdio>
#include <map>

#include "apps/commands.h"
#include "apps/make_policy.h"
#include "apps/makers.h"
#include "apps/planner.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "apps/sensitivity.h"
#include "apps/training_step.h"
#include "core/cuda_memory.h"
#include "core/parallel.h"

namespace frugal::apps {
namespace {

constexpr const char* kBase = "L0: compression.level=L0 compression.recipes=false";
const std::vector<std::string> kUsual = {"L0 + recipes: compression.level=L0",
                                         "L1 + recipes: compression.level=L1",
                                         "L1.2 + recipes: compression.level=L1.2"};

constexpr double kRate = 1e-3;  // of the updates, which only have to take their time
// The steps that count begin here: far from the first, in which policies look more often.
constexpr uint64_t kFirstStep = 1'000'001;

// A row of the table: the benchmark's configuration with some keys of its own.
struct Variant {
  std::string name;
  std::vector<std::string> sets;
  std::unique_ptr<SavePolicy> policy;
  std::unique_ptr<Planner> planner;  // of the policy `budget`
  Context context;
  Config config;
  std::vector<double> milliseconds;
  double adapting = 0;  // milliseconds a step, of measuring now and then
  StepMemory memory;
};

// Separated by spaces outside of double quotes, as JSON's texts are.
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  bool quoted = false, inside = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (c == ' ' && !quoted) {
      inside = false;
      continue;
    }
    if (!inside) all.emplace_back();
    inside = true;
    all.back() += c;
  }
  return all;
}

// Errors: other keys than those that say how activations are kept.
Variant parse_variant(const std::string& text, const Json& document) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw ConfigError("", fmt::format("--variant: expected NAME: PATH=VALUE ..., got '{}'", text));
  Variant variant;
  variant.name = text.substr(0, colon);
  Json own = document;
  for (const std::string& set : words(text.substr(colon + 1))) {
    if (set.rfind("compression.", 0) != 0 && set.rfind("train.checkpointing=", 0) != 0)
      throw ConfigError(
          "",
          fmt::format("--variant: expected keys of compression, or train.checkpointing, got '{}'",
                      set));
    apply_set(own, set);
    variant.sets.push_back(set);
  }
  variant.config = parse_config(own);
  resolve(variant.config);
  return variant;
}

// The networks and batches of the README's figures.
Json workload(const std::string& name) {
  static const std::map<std::string, const char*> known = {
      {"r20", R"({"model": {"name": "resnet20", "shortcut": "B"},
                  "data": {"name": "random", "batch_size": 128, "shape": [32, 32, 3]}})"},
      {"r18", R"({"model": {"name": "resnet18", "stem": "cifar"},
                  "data": {"name": "random", "batch_size": 32, "shape": [32, 32, 3]}})"},
      {"r50", R"({"model": {"name": "resnet50"},
                  "data": {"name": "random", "batch_size": 4, "shape": [224, 224, 3], "classes": 1000}})"},
      // Of the layers as torch.nn.TransformerEncoder has them.
      {"bert", R"({"model": {"name": "encoder"}, "optim": {"name": "adamw"},
                   "data": {"name": "random_tokens", "batch_size": 32, "max_length": 128}})"},
      // As large as ogbn-arxiv.
      {"gcn", R"({"model": {"name": "gcn", "layers": 3, "width": 256, "batch_norm": true},
                  "data": {"name": "random_graph", "nodes": 169343, "edges": 1166243, "features": 128}})"}};
  const auto found = known.find(name);
  std::vector<std::string> names;
  for (const auto& each : known) names.push_back(each.first);
  if (found == known.end())
    throw ConfigError(
        "", fmt::format("--workload: expected one of {}, got '{}'", fmt::join(names, ", "), name));
  return Json::parse(found->second);
}

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Gives an adaptive policy its widths. Returns what that takes of each step of an interval: the
// second refresh, since the first is one of its own. REQUIRES: the policy decided step 0.
double adapt(Variant& v, Module& model, const Batch& batch) {
  auto* adaptive = find_in<compress::AdaptivePolicy>(*v.policy);
  if (adaptive == nullptr) return 0;
  SensitivityOptions options = sensitivity_options(v.config);
  if (v.planner != nullptr)
    options.allocate = [&] { v.planner->plan_again(*find_in<compress::BudgetPolicy>(*v.policy)); };
  Adaptation adaptation(model, *adaptive, options);
  const StepReplay replay{0, v.context.rng->state(), 0, v.context.checkpointing};
  adaptation.refresh(batch, options.first, replay);
  const auto begin = Clock::now();
  adaptation.refresh(batch, options.interval, replay);
  return milliseconds_since(begin) / static_cast<double>(options.interval);
}

Batch first_batch(const Config& config, Device device) {
  if (device.type == DeviceType::meta)  // shapes are enough
    return shape_of_batch(batch_spec(config), config.data.batch_size, device);
  return *make_batches(config, Split::train)->next();
}

}  // namespace

void bench_step(const BenchArguments& arguments) {
  Json document = arguments.config.empty()
                      ? workload(arguments.workload.empty() ? "r20" : arguments.workload)
                      : read_json(arguments.config);
  for (const std::string& set : arguments.sets) apply_set(document, set);
  Config config = parse_config(document);
  resolve(config);
  std::vector<Variant> variants;
  variants.push_back(parse_variant(kBase, document));
  for (const std::string& text : arguments.variants.empty() ? kUsual : arguments.variants)
    variants.push_back(parse_variant(text, document));
  const Device device = set_up_device(config.run);
  const bool runs = device.type != DeviceType::meta;
  const int64_t repeats = !runs ? 1 : arguments.repeats > 0 ? arguments.repeats : 5;
  int64_t parameter_count = 0;
  try {
    const auto model = make_model(config, batch_spec(config), device);
    for (const auto& p : model->parameters()) parameter_count += p.parameter->value().numel();
    const auto optimizer = make_optimizer(config.optim, *model);
    const Batch batch = first_batch(config, device);
    Rng rng(static_cast<uint64_t>(config.run.seed));
    for (Variant& v : variants) {
      v.policy = make_policy(v.config.compression, static_cast<uint64_t>(config.run.seed));
      if (v.config.compression.policy == "budget") {
        v.planner = std::make_unique<Planner>(v.config);
        v.planner->adopt(*find_in<compress::BudgetPolicy>(*v.policy));
      }
      v.context.rng = &rng;
      v.context.checkpointing = v.config.train.checkpointing;
    }
    // Alternating, so that a slow moment of the machine meets every variant; the first round warms
    // up, and makes the optimizer's state.
    uint64_t step = kFirstStep;
    for (int64_t round = -1; round < repeats; ++round) {
      for (Variant& v : variants) {
        const auto begin = Clock::now();
        begin_peak(device);
        model->zero_grad();
        const uint64_t number = round < 0 ? 0 : step++;
        begin_step(number);
        UpdateInBackward update(*optimizer, kRate);
        StepOptions options;
        if (config.optim.in_backward) options.leaf_done = update.leaf_done();
        BatchResult result = forward_backward(*model, batch, v.context, v.policy.get(), options);
        optimizer->step(kRate);
        if constexpr (kHasCuda)
          if (device.type == DeviceType::cuda) cuda::synchronize();
        end_peak(device, result.memory);
        const double took = milliseconds_since(begin);
        if (round < 0) {
          if (runs) v.adapting = adapt(v, *model, batch);
          continue;
        }
        v.milliseconds.push_back(took);
        v.memory.raise(result.memory);
      }
    }
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"", "step", "time", "activations", "less", "packed", "peak", "less"}};
  const Variant& base = variants.front();
  for (const Variant& v : variants) {
    auto over = [](double a, double b) { return b > 0 ? a / b : 0; };
    const double ms = median(v.milliseconds) + v.adapting;
    const double slower = runs ? over(ms, median(base.milliseconds)) : 0;
    const double less =
        over(static_cast<double>(base.memory.saved()), static_cast<double>(v.memory.saved()));
    const double lower =
        over(static_cast<double>(base.memory.peak), static_cast<double>(v.memory.peak));
    results.push_back({{"name", v.name},
                       {"level", v.config.compression.level},
                       {"recipes", v.config.compression.recipes},
                       {"sets", v.sets},
                       {"step_ms_median", runs ? Json(ms) : Json(nullptr)},
                       {"adapting_ms", v.adapting},
                       {"time_over_L0", runs ? Json(slower) : Json(nullptr)},
                       {"L0_activations_over_these", less},
                       {"L0_peak_over_this", lower},
                       {"memory", memory_json(v.memory)}});
    rows.push_back({v.name, runs ? fmt::format("{:.1f} ms", ms) : "-",
                    runs ? fmt::format("{:.2f}x", slower) : "-", readable_bytes(v.memory.saved()),
                    fmt::format("{:.2f}x", less), readable_bytes(v.memory.packed),
                    readable_bytes(v.memory.peak), fmt::format("{:.2f}x", lower)});
  }
  const Shape sample = batch_spec(config).sample;
  if (arguments.json) {
    const Json report = {{"model", config.model.name},
                         {"parameters", parameter_count},
                         {"batch_size", config.data.batch_size},
                         {"sample", std::vector<int64_t>(sample.begin(), sample.end())},
                         {"threads", num_threads()},
                         {"repeats", repeats},
                         {"variants", results}};
    std::printf("%s\n", report.dump(2).c_str());
    return;
  }
  std::printf("%s, batch %lld of %s, %d threads\n%s", config.model.name.c_str(),
              static_cast<long long>(config.data.batch_size), sample.str().c_str(), num_threads(),
              table(rows).c_str());
}

}  // namespace frugal::apps
