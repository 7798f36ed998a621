#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <regex>

#include "apps/cli/commands.h"
#include "apps/cli/plan_explain.h"
#include "apps/cli/plan_text.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/make_model.h"
#include "apps/config/make_run.h"
#include "apps/config/planned_run.h"
#include "apps/config/profile_file.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/starting_weights.h"
#include "apps/config/train_options.h"
#include "apps/text/wrapped.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "train/planning/bytes.h"
#include "train/planning/planner.h"

namespace frugal::apps {
namespace {

// Numbers are those of configurations, so 1e9 is one.
int64_t bytes_of_memory(const std::string& text) {
  const Json number = Json::parse(text, nullptr, false);
  if (number.is_number_float() && number.get<double>() >= 0 && number.get<double>() < 0x1p63 &&
      number.get<double>() == std::floor(number.get<double>()))
    return static_cast<int64_t>(number.get<double>());
  if (!std::regex_match(text.substr(0, 64), std::regex(kBytesPattern)))
    throw ConfigError(
        "", fmt::format("--memory: expected bytes such as \"2 GiB\", got {}", in_quotes(text)));
  return parse_bytes(text, "--memory");
}

double variance_of(const compress::AdaptivePolicy::Item& item) {
  return item.sensitivity.value_or(0) * compress::AdaptivePolicy::variance(item, item.bits);
}

// How the plan of a memory budget keeps each tensor.
void print_budget(const Config& config, const Planner& planner) {
  const Planned& planned = planner.planned();
  std::vector<std::vector<std::string>> rows = {{"tensor", "shape", "kept in", "variance"}};
  for (const auto& item : planned.items) {
    const bool raw = item.bits == compress::AdaptivePolicy::kRaw;
    rows.push_back(
        {std::to_string(item.seq), item.shape.str(),
         raw ? "raw"
             : fmt::format("{} bits{}", item.bits, item.seq < planned.plan.moved ? ", file" : ""),
         planned.variance > 0 ? fmt::format("{:.1f} %", 100 * variance_of(item) / planned.variance)
                              : "-"});
  }
  if (!planned.items.empty()) std::printf("%s", table(rows).c_str());
  const Json report = to_json(planner.report());
  std::printf("%s, %s: peak %s and %s for kernels, activations %s, %.2f bits on average\n",
              config.model.name.c_str(), report["kind"].get<std::string>().c_str(),
              readable_bytes(planned.memory.peak).c_str(),
              readable_bytes(planner.reserve()).c_str(),
              readable_bytes(planned.memory.saved()).c_str(), planned.average_bits);
  if (report["checkpointed_blocks"] != 0)
    std::printf(
        "recomputed: %s blocks\n",
        report["checkpointed_blocks"].is_string()
            ? "all"
            : fmt::format("the first {}", report["checkpointed_blocks"].get<int64_t>()).c_str());
  if (!planned.plan.kept.empty())
    std::printf("raw although they could be rebuilt: %s\n",
                with_noun(planned.plan.kept.size(), "tensor").c_str());
  if (planned.plan.moved > 0)
    std::printf("tensors before %llu go to the file\n",
                static_cast<unsigned long long>(planned.plan.moved));
}

Json tensors_json(const Planned& planned) {
  Json tensors = Json::array();
  for (const auto& item : planned.items)
    tensors.push_back({{"seq", item.seq},
                       {"shape", std::vector<int64_t>(item.shape.begin(), item.shape.end())},
                       {"bits", item.bits},
                       {"moved", item.seq < planned.plan.moved},
                       {"predicted_variance", variance_of(item)}});
  return tensors;
}

train::Growth growth_named(const std::string& name) {
  using train::Growth;
  if (name == "batch") return Growth::batch;
  if (name == "layers") return Growth::layers;
  if (name == "width") return Growth::width;
  FRUGAL_ASSERT(name == "resolution");
  return Growth::resolution;
}

// REQUIRES: `config` is not resolved.
void print_largest(const Config& config, const PlanArguments& arguments, int64_t memory) {
  const train::Growth growth = growth_named(arguments.max);
  if (arguments.only && !config.compression.memory_budget.empty())
    throw ConfigError("compression.memory_budget",
                      "expected none with --only, which asks for the largest of the configuration "
                      "itself");
  const std::string key = key_of(config, growth);
  Config resolved = config;
  resolve(resolved);
  std::vector<train::LargestOfWay> ways =
      largest_of_ways(planned_run(resolved), growth, memory, arguments.only);
  if (growth == train::Growth::batch)  // the key data.batch_size is the batch of all ranks
    for (train::LargestOfWay& way : ways) way.largest.value *= arguments.ranks;
  if (arguments.json)
    return print_json({{"max", arguments.max},
                       {"key", key},
                       {"memory_bytes", memory},
                       {"levels", to_json(ways)}});
  std::printf(
      "%s: the largest %s whose step fits into %s%s\n%s", config.model.name.c_str(), key.c_str(),
      readable_bytes(memory).c_str(),
      arguments.ranks > 1 ? fmt::format(" on each of {} ranks", arguments.ranks).c_str() : "",
      text_of(ways, arguments.max).c_str());
}

// The memory that a step should fit into, and where it comes from. Empty: a GPU whose memory is not
// given, for which a table says enough.
std::optional<std::pair<int64_t, std::string>> memory_for(const Config& config,
                                                          const PlanArguments& arguments) {
  if (!arguments.memory.empty()) return {{bytes_of_memory(arguments.memory), "--memory"}};
  if (config.run.memory_limit > 0) return {{config.run.memory_limit, "memory_limit"}};
  if (config.run.on_cuda()) return std::nullopt;
  if (train::free_memory() == 0)
    throw ConfigError("",
                      "--memory: expected the memory of the machine, such as --memory \"24 GiB\"");
  return {{train::free_for_tensors(), "free memory"}};
}

// The tokens of a row of the largest batch, where each batch is as long as its longest sample; else
// 0.
int64_t tokens_of_largest(const Config& config) {
  if (batch_spec(config).kind != BatchSpec::Kind::sequences) return 0;
  return columns_of_largest(config, Split::train, config.data.batch_size);
}

bool samples_graph(const Config& config) {
  return family_of(config.model) == Family::graph && config.data.sampler != "full";
}

// "resnet20, batch 128 of [32, 32, 3], cpu f32". With several ranks, the batch is that of one rank.
// Whole graphs have none. A second line says that texts are not as long as they may be, or that
// steps on parts of a graph are counted as steps on all of it.
std::string title(const Config& config) {
  Shape sample = batch_spec(config).sample;
  std::string second;
  if (const int64_t tokens = tokens_of_largest(config); tokens > 0 && tokens < sample[0]) {
    second = fmt::format("\nthe largest training batch has rows of {}, data.max_length is {}",
                         with_noun(tokens, "token"), sample[0]);
    sample = {tokens};
  }
  if (samples_graph(config))
    second = fmt::format(
        "\nbatches of data.sampler={} are counted as the whole graph, the most that they can be",
        config.data.sampler);
  const std::string batch =
      is_read(config, "data.batch_size") ? fmt::format("batch {} of ", config.data.batch_size) : "";
  const int ranks = config.distributed.ranks;
  return fmt::format("{}, {}{}, {} {}{}{}", config.model.name, batch, sample.str(),
                     config.run.device, config.run.precision,
                     ranks > 1 ? fmt::format(", one of {} ranks", ranks) : "", second);
}

// Errors: a memory budget, whose table says how each tensor is kept.
void print_explanation(const Config& config, train::Run& run, bool json) {
  if (!config.compression.memory_budget.empty())
    throw ConfigError("compression.memory_budget",
                      fmt::format("expected none with --explain; without it the plan says how each "
                                  "tensor is kept; got {}",
                                  config.compression.memory_budget));
  train::WaySteps steps(run.planned());
  const Explanation explanation = explain_step(config, run.planned(), steps);
  if (json) return print_json(to_json(explanation));
  std::printf("%s\n%s", title(config).c_str(), text_of(explanation).c_str());
}

// A configuration of --model, --shape and --batch: the network on random samples. Errors: a shape
// that is none of the network's samples.
Config config_of_model(const PlanArguments& arguments) {
  Json document = {{"model", {{"name", arguments.model}}}, {"data", Json::object()}};
  Config named;
  named.model.name = arguments.model;
  const Family family = family_of(named.model);  // Errors: an unknown name
  Json& data = document["data"];
  const auto expect = [&](size_t axes, const char* what) {
    if (!arguments.shape.empty() && arguments.shape.size() != axes)
      throw ConfigError("", fmt::format("--shape: expected {} for {}, got {}", what,
                                        arguments.model, fmt::join(arguments.shape, ",")));
  };
  switch (family) {
    case Family::images:
    case Family::segmentation:
      expect(3, "height, width and channels, such as 224,224,3,");
      data["name"] = family == Family::images ? "random" : kRandomMasks;
      data["shape"] = arguments.shape.empty() ? std::vector<int64_t>{224, 224, 3} : arguments.shape;
      if (arguments.batch > 0) data["batch_size"] = arguments.batch;
      break;
    case Family::encoder:
    case Family::decoder:
      expect(1, "the tokens of a sample, such as 128,");
      data["name"] = "random_tokens";
      if (!arguments.shape.empty()) data["max_length"] = arguments.shape[0];
      if (arguments.batch > 0) data["batch_size"] = arguments.batch;
      break;
    case Family::graph:
      expect(2, "nodes and features, such as 10000,128,");
      data["name"] = "random_graph";
      if (!arguments.shape.empty()) {
        const int64_t nodes = arguments.shape[0];
        data["nodes"] = nodes;
        // As many for each node as by default, where the default number does not fit.
        if (nodes < 1000) data["edges"] = std::min(5 * nodes, nodes * nodes);
      }
      if (!arguments.shape.empty()) data["features"] = arguments.shape[1];
      if (arguments.batch > 0)
        throw ConfigError("", fmt::format("--batch: expected none for {}, which takes a whole "
                                          "graph, got {}",
                                          arguments.model, arguments.batch));
      break;
    case Family::detection:
      throw ConfigError("",
                        fmt::format("--model: expected a CONFIG file for {}, whose steps depend "
                                    "on the boxes of pictures; configs/bccd_retinanet.json is one",
                                    arguments.model));
  }
  return load_document(std::move(document), arguments.sets);
}

}  // namespace

void plan_command(const PlanArguments& arguments) {
  Config config = arguments.model.empty() ? load_config(arguments.config, arguments.sets)
                                          : config_of_model(arguments);
  check_starting_weights(config);
  config.distributed.ranks = arguments.ranks;
  config = share_of_rank(config);
  const int64_t frozen_epochs = config.train.freeze_epochs;
  config = largest_phase(config);
  const bool thaws = config.train.freeze_epochs < frozen_epochs;
  set_up_threads(config.run);
  set_up_products(config.run);
  if (thaws && !arguments.json)
    std::printf(
        "train.freeze_epochs=%lld: steps are those from epoch %lld on, where all is trained\n",
        static_cast<long long>(frozen_epochs), static_cast<long long>(frozen_epochs + 1));
  if (!arguments.max.empty())
    return print_largest(config, arguments, bytes_of_memory(arguments.memory));
  resolve(config);
  train::Run run = make_run(config);
  if (arguments.explain) return print_explanation(config, run, arguments.json);
  const auto memory = memory_for(config, arguments);
  const auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<Planner> budget = run.planner();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const train::RunPlan plan = memory ? run.plan(memory->first) : run.plan();
  const std::string assumed = assumed_on_meta(config);
  std::optional<Recommended> found;
  if (plan.recommended) found.emplace(Recommended{*plan.recommended, memory->second, config});
  if (arguments.json) {
    Json report = Json::object();
    if (budget != nullptr) {
      report = to_json(budget->report());
      report["plan_seconds"] = took.count();
      report["meta_steps"] = budget->meta_steps();
      report["plan"] = tensors_json(budget->planned());
    }
    if (thaws) report["from_epoch"] = frozen_epochs + 1;
    if (const int64_t tokens = tokens_of_largest(config); tokens > 0) report["tokens"] = tokens;
    if (samples_graph(config)) report["whole_graph"] = true;
    report["levels"] = to_json(plan.ways);
    if (!assumed.empty()) report["widths"] = assumed;
    if (found) report["recommended"] = to_json(*found);
    return print_json(report);
  }
  if (budget != nullptr) {
    print_budget(config, *budget);
    std::printf("%s on meta, %.2f s\n\n", with_noun(budget->meta_steps(), "step").c_str(),
                took.count());
  }
  std::printf("%s\n%s", title(config).c_str(), text_of(plan.ways).c_str());
  if (!assumed.empty())
    std::printf("%s", wrapped("widths that follow from values: " + assumed + "\n").c_str());
  if (const std::string kept = kept_gradients(config, budget.get()); !kept.empty())
    std::printf("%s\n", kept.c_str());
  if (found) std::printf("%s", text_of(*found, plan.ways).c_str());
}

}  // namespace frugal::apps
