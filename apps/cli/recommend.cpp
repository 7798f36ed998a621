#include "apps/cli/recommend.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "apps/config/level_keys.h"
#include "apps/config/train_options.h"
#include "train/option_error.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

constexpr int64_t kProgram = int64_t{64} << 20, kShareOfProgram = 16;

// A number of bytes in a file of the system; 0: there is none.
int64_t bytes_in(const char* path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes ? bytes : 0;
}

// "--set PATH=VALUE" each.
std::vector<std::string> set_words(const Recommendation& found) {
  std::vector<std::string> words;
  if (!found.row().preset.empty())
    words.push_back("--set compression.preset=" + found.row().preset);
  for (const std::string& set : found.row().sets) words.push_back("--set " + set);
  if (found.test_batch)
    words.push_back(fmt::format("--set data.test_batch_size={}", *found.test_batch));
  return words;
}

std::string reason(const Recommendation& found) {
  const Recommendation::Row& row = found.row();
  const std::string memory = fmt::format("{} ({})", readable_bytes(found.memory), found.from);
  const std::string peak = readable_bytes(row.peak);
  if (row.preset.empty()) {
    const std::string budget =
        row.sets.empty() ? "compression.memory_budget as it is" : "a budget of that memory";
    const std::string takes = fmt::format("{}: its plan takes {}, kernels included", budget, peak);
    if (found.fits && row.sets.empty()) return fmt::format("{}, and fits into {}", takes, memory);
    if (found.fits)
      return fmt::format("{}; the budget of the configuration takes {}, and does not fit into {}",
                         takes, readable_bytes(found.rows.front().peak), memory);
    return fmt::format(
        "{}, which does not fit into {}, and there is no plan for a budget of that memory. A "
        "smaller data.batch_size takes less",
        takes, memory);
  }
  if (found.fits && row.sets.empty())
    return fmt::format("{}: its peak, {}, fits into {}", row.what, peak, memory);
  if (found.fits)
    return fmt::format("no preset alone fits into {}; with these keys a step takes {}", memory,
                       peak);
  return fmt::format(
      "no preset fits into {}: a step of this one takes {}{}. A smaller data.batch_size takes less",
      memory, peak, row.peak <= found.memory ? ", but evaluations take more" : ", the least");
}

// Lists of keys that lower the peak with any preset. Those of the first group cost next to no time.
// Those of the second recompute blocks, which updates in the backward pass exclude.
std::vector<std::vector<std::vector<std::string>>> keys_for_less(const OptimConfig& optim) {
  using Keys = std::vector<std::string>;
  const Keys in_backward = {"optim.in_backward=true"}, recomputed = {"train.checkpointing=true"};
  std::vector<Keys> quick, slow = {recomputed};
  if (!optim.in_backward) quick.push_back(in_backward);
  if (optim.name == "sgd" || optim.name == "adamw") {
    const std::string in_8bit = fmt::format("optim.name={}_8bit", optim.name);
    quick.push_back(optim.in_backward ? Keys{in_8bit} : Keys{in_backward[0], in_8bit});
    slow.push_back({recomputed[0], in_8bit});
  }
  return {quick, slow};
}

// Null where the configuration cannot have the keys.
std::unique_ptr<PlanSteps> steps_with(const Config& config, const std::vector<std::string>& keys) {
  try {
    return std::make_unique<PlanSteps>(with_level(config, {"", keys}));
  } catch (const ConfigError&) {
    return nullptr;
  }
}

// Lines of at most 80 columns.
std::string wrapped(const std::vector<std::string>& words) {
  std::string all, line;
  for (const std::string& word : words) {
    if (!line.empty() && line.size() + 1 + word.size() > 80) {
      all += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return all + line;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace

int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  int64_t bytes = 0;
  for (std::string word; file >> word;)
    if (word == "MemAvailable:") {
      file >> bytes;
      bytes *= 1024;
      break;
    }
  const int64_t limit = bytes_in("/sys/fs/cgroup/memory.max");
  if (limit > 0)
    bytes =
        std::min(bytes, std::max<int64_t>(limit - bytes_in("/sys/fs/cgroup/memory.current"), 0));
  return bytes;
}

namespace {

// A recommendation that knows only the memory that there is.
Recommendation for_memory(const Config& config, std::optional<int64_t> memory) {
  Recommendation found;
  if (memory) {
    found.memory = *memory;
    found.from = "--memory";
  } else if (config.run.memory_limit > 0) {
    found.memory = config.run.memory_limit;
    found.from = "memory_limit";
  } else {
    const int64_t free = free_memory();
    if (config.run.on_cuda() || free == 0)
      throw ConfigError("", fmt::format("--memory: expected the memory of the {}, such as --memory "
                                        "\"24 GiB\"",
                                        config.run.on_cuda() ? "GPU" : "machine"));
    found.memory = std::max<int64_t>(free - free / kShareOfProgram - kProgram, 0);
    found.from = "free memory";
  }
  return found;
}

}  // namespace

Recommendation recommend(const Config& config, std::optional<int64_t> memory,
                         const Planner& planner) {
  Recommendation found = for_memory(config, memory);
  const auto add = [&](const Planner& of, std::vector<std::string> sets) {
    const StepMemory& step = of.planned().memory;
    found.rows.push_back({"", "", std::move(sets), step.saved(), step.peak + of.reserve()});
    if (found.rows.back().peak > found.memory) return;
    found.fits = true;
    found.chosen = found.rows.size() - 1;
    if (of.settings().test_batch < config.data.test_batch_size)
      found.test_batch = of.settings().test_batch;
  };
  add(planner, {});
  if (found.fits) return found;
  Config smaller = config;
  smaller.compression.memory_budget = fmt::format("{}MiB", found.memory >> 20);
  try {
    add(Planner(planner_options(smaller)),
        {"compression.memory_budget=" + smaller.compression.memory_budget});
  } catch (const OptionError&) {  // no plan is that small
  }
  return found;
}

Recommendation recommend(const Config& config, std::optional<int64_t> memory, PlanSteps& steps) {
  Recommendation found = for_memory(config, memory);
  const auto count = [&](const compress::Named& preset, const std::vector<std::string>& keys,
                         PlanSteps& counted) {
    std::vector<std::string> sets = {fmt::format("compression.preset={}", preset.name)};
    sets.insert(sets.end(), keys.begin(), keys.end());
    const Config with = with_level(config, {std::string(preset.name), sets});
    const StepMemory step = counted.step(with);
    found.rows.push_back(
        {std::string(preset.name), std::string(preset.summary), keys, step.saved(), step.peak});
    if (found.fits || step.peak > found.memory) return;
    // An evaluation packs nothing. It takes less with a smaller batch.
    int64_t test_batch = with.data.test_batch();
    while (test_batch > 1 && counted.evaluation(test_batch) > found.memory) test_batch /= 2;
    if (counted.evaluation(test_batch) > found.memory) return;
    found.fits = true;
    found.chosen = found.rows.size() - 1;
    if (test_batch < with.data.test_batch()) found.test_batch = test_batch;
  };
  std::vector<compress::Named> ours;
  for (const compress::Named& preset : compress::presets())
    if (preset.of == compress::Named::preset) ours.push_back(preset);
  for (const compress::Named& preset : ours) count(preset, {}, steps);
  const auto lowest = [&] {  // the first one, if several are equal
    return std::min_element(found.rows.begin(), found.rows.end(),
                            [](const auto& a, const auto& b) { return a.peak < b.peak; });
  };
  if (lowest()->peak > found.memory)
    for (const auto& lists : keys_for_less(config.optim)) {
      std::vector<std::unique_ptr<PlanSteps>> with_keys;
      for (const auto& keys : lists) with_keys.push_back(steps_with(config, keys));
      for (const compress::Named& preset : ours)
        for (size_t i = 0; i < lists.size(); ++i)
          if (!found.fits && with_keys[i] != nullptr) count(preset, lists[i], *with_keys[i]);
    }
  if (!found.fits) found.chosen = static_cast<size_t>(lowest() - found.rows.begin());
  return found;
}

std::string text_of(const Recommendation& found) {
  std::vector<std::string> sets = set_words(found);
  if (sets.empty()) sets.emplace_back(found.fits ? "this config" : "nothing fits");
  sets.insert(sets.begin(), "recommended:");
  return fmt::format("{}\n{}\n", wrapped(sets), wrapped(words_of(reason(found))));
}

Json to_json(const Recommendation& found) {
  Json rows = Json::array();
  for (const Recommendation::Row& row : found.rows)
    rows.push_back({{"preset", row.preset.empty() ? Json(nullptr) : Json(row.preset)},
                    {"with", row.sets},
                    {"activation_bytes", row.activations},
                    {"peak_bytes", row.peak}});
  return {{"preset", found.row().preset.empty() ? Json(nullptr) : Json(found.row().preset)},
          {"with", found.row().sets},
          {"fits", found.fits},
          {"set", fmt::to_string(fmt::join(set_words(found), " "))},
          {"reason", reason(found)},
          {"memory_bytes", found.memory},
          {"memory_from", found.from},
          {"presets", rows}};
}

}  // namespace frugal::apps
