#include <chrono>
#include <cstdio>
#include <optional>
#include <regex>

#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/recommend.h"
#include "apps/cli/report.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/train_options.h"
#include "core/quoted.h"
#include "train/planning/bytes.h"
#include "train/planning/planner.h"

namespace frugal::apps {
namespace {

int64_t bytes_of_memory(const std::string& text) {
  if (!std::regex_match(text.substr(0, 64), std::regex(kBytesPattern)))
    throw ConfigError(
        "", fmt::format("--memory: expected bytes such as \"2 GiB\", got {}", in_quotes(text)));
  return parse_bytes(text, "--memory");
}

}  // namespace

void plan_command(const PlanArguments& arguments) {
  using compress::AdaptivePolicy;
  Config config = load_config(arguments.config, arguments.sets);
  std::optional<int64_t> memory;
  if (!arguments.memory.empty()) memory = bytes_of_memory(arguments.memory);
  const bool has_budget = !config.compression.memory_budget.empty();
  std::optional<Recommendation> found;
  // A plan for a GPU says enough where its memory is not given.
  if (!has_budget || memory || config.run.device != "cuda" || config.run.memory_limit > 0)
    found = recommend(config, memory);
  resolve(config);
  set_up_threads(config.run);
  if (config.compression.policy != "budget") {
    if (arguments.json)
      std::printf("%s\n", Json({{"recommended", to_json(*found)}}).dump(2).c_str());
    else
      std::printf("%s", text_of(*found).c_str());
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  const Planner planner(planner_options(config));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const Planned& planned = planner.planned();
  Json tensors = Json::array();
  std::vector<std::vector<std::string>> rows = {{"tensor", "shape", "kept in", "variance"}};
  for (const auto& item : planned.items) {
    const double variance =
        item.sensitivity.value_or(0) * AdaptivePolicy::variance(item, item.bits);
    const bool raw = item.bits == AdaptivePolicy::kRaw, moved = item.seq < planned.plan.moved;
    tensors.push_back({{"seq", item.seq},
                       {"shape", std::vector<int64_t>(item.shape.begin(), item.shape.end())},
                       {"bits", item.bits},
                       {"moved", moved},
                       {"predicted_variance", variance}});
    rows.push_back(
        {std::to_string(item.seq), item.shape.str(),
         raw ? "raw" : fmt::format("{} bits{}", item.bits, moved ? ", file" : ""),
         planned.variance > 0 ? fmt::format("{:.1f} %", 100 * variance / planned.variance) : "-"});
  }
  Json report = to_json(planner.report());
  if (arguments.json) {
    report["plan_seconds"] = took.count();
    report["meta_steps"] = planner.meta_steps();
    report["plan"] = tensors;
    if (found) report["recommended"] = to_json(*found);
    std::printf("%s\n", report.dump(2).c_str());
    return;
  }
  if (!planned.items.empty()) std::printf("%s", table(rows).c_str());
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
    std::printf("%zu tensors that could be rebuilt stay raw\n", planned.plan.kept.size());
  if (planned.plan.moved > 0)
    std::printf("tensors before %llu go to the file\n",
                static_cast<unsigned long long>(planned.plan.moved));
  std::printf("%lld steps on meta, %.2f s\n", static_cast<long long>(planner.meta_steps()),
              took.count());
  if (found) std::printf("%s", text_of(*found).c_str());
}

}  // namespace frugal::apps
