#include "apps/cli/plan_levels.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>

#include "apps/cli/report.h"
#include "apps/config/config_readers.h"
#include "apps/config/level_keys.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "compress/policies/levels.h"
#include "train/planning/bytes.h"
#include "train/policy_parts.h"

namespace frugal::apps {
namespace {

constexpr const char* kThisConfig = "this config";

std::vector<std::string> bits_sets(int bits) {
  if (bits == 0) return {"compression.preset=lossless", "compression.recipes=false"};
  return {"compression.preset=safe", fmt::format("compression.bits={}", bits),
          "compression.gact.adaptive=false", "compression.entropy=false"};
}

std::string bits_name(int bits) { return bits == 0 ? "whole" : fmt::format("{} bits", bits); }

std::vector<std::string> with(std::vector<std::string> sets, const std::string& set) {
  sets.push_back(set);
  return sets;
}

std::string set_text(const std::vector<std::string>& sets) {
  std::string text;
  for (const std::string& set : sets) text += (text.empty() ? "--set " : " --set ") + set;
  return text;
}

int64_t bytes_of(const StepMemory& memory, Category category) {
  return memory.at_peak[static_cast<size_t>(category)];
}

bool lowers(const LevelMemory& row, const LevelMemory& without) {
  return row.memory.peak < without.memory.peak;
}
bool lowers(const LargestOfLevel& row, const LargestOfLevel& without) {
  return row.largest.value > without.largest.value;
}

// A row of `config` itself and of each of its levels. `measure` fills a row by its configuration.
// `window_for` says how many bytes of a row without offload are to stay in memory.
template <class Row, class Measure, class WindowFor>
std::vector<Row> level_rows(const Config& config, bool only, const Measure& measure,
                            const WindowFor& window_for) {
  std::vector<PlanLevel> levels;
  if (!only) levels = plan_levels(config);
  std::vector<Row> rows;
  const auto add = [&](const PlanLevel& level, const std::function<Config()>& with) {
    Row& row = rows.emplace_back();
    row.name = level.name;
    row.set = set_text(level.sets);
    row.without = level.without;
    try {
      measure(row, with());
    } catch (const Error& e) {
      row.why = e.what();
    }
  };
  if (config.compression.memory_budget.empty()) add({kThisConfig, {}}, [&] { return config; });
  for (PlanLevel& level : levels) {
    const auto without = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return !level.without.empty() && row.name == level.without;
    });
    const bool compares = without != rows.end() && without->why.empty();
    const auto place = without - rows.begin();
    if (compares && level.chooses_window)
      level.sets.push_back(
          fmt::format("compression.advanced.offload_window={}MiB", window_for(*without) >> 20));
    add(level, [&] { return with_level(config, level); });
    if (compares && rows.back().why.empty())
      rows.back().idle = !lowers(rows.back(), rows[static_cast<size_t>(place)]);
  }
  return rows;
}

// A power of 2, from 1 MiB to what runs take without being told.
int64_t window_of(int64_t bytes) {
  constexpr int64_t kLeast = int64_t{1} << 20;
  const int64_t most = CompressionConfig().offload_window;
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp(bytes, kLeast, most))));
}

// Names of rows that are left out, for people.
template <class Row>
std::string idle_text(const std::vector<Row>& rows, const char* what) {
  std::vector<std::string> words;
  for (const Row& row : rows)
    if (row.idle) {
      if (!words.empty()) words.back() += ";";
      words.push_back(row.name);
    }
  if (words.empty()) return "";
  std::string text = fmt::format("{}:", what);
  for (const std::string& word : words) {
    if (text.size() - text.rfind('\n') - 1 + 1 + word.size() > 80) text += "\n ";
    text += " " + word;
  }
  return text + "\n";
}

}  // namespace

std::vector<PlanLevel> plan_levels(const Config& config) {
  std::vector<PlanLevel> levels = {{bits_name(0), bits_sets(0)}};
  const auto add_preset = [&](const compress::Named& preset) {
    levels.push_back(
        {std::string(preset.name), {fmt::format("compression.preset={}", preset.name)}});
  };
  add_preset(compress::presets().front());  // lossless
  for (const int bits : {8, 4, 3, 2}) levels.push_back({bits_name(bits), bits_sets(bits)});
  for (const compress::Named& preset : compress::presets().subspan(1))
    if (preset.of == compress::Named::preset) add_preset(preset);
  if (policy_of(config) == PolicyKind::actnn) {
    for (const compress::Named& level : compress::levels(compress::PolicyKind::actnn))
      if (level.same_as.empty() && level.choice.bits() > 0 && !level.offload)
        levels.push_back(
            {fmt::format("actnn {}", level.name),
             {"compression.policy=actnn", fmt::format("compression.level={}", level.name)}});
  }
  if (policy_of(config) == PolicyKind::acgc)
    for (const double growth : {0.25, 1.0, 4.0})
      levels.push_back(
          {fmt::format("acgc, e = {}", growth),
           {"compression.policy=acgc", fmt::format("compression.acgc.growth={}", growth)}});
  if (is_read(config, "train.checkpointing"))
    for (const int bits : {0, 4, 2})
      levels.push_back(
          {bits_name(bits) + ", recomputed",
           with(with(bits_sets(bits), "train.checkpointing=true"), "train.checkpointed_blocks=0"),
           bits_name(bits)});
  const std::string folder = config.compression.offload.empty()
                                 ? std::filesystem::temp_directory_path().string()
                                 : config.compression.offload;
  for (const int bits : {0, 4, 2})
    levels.push_back({bits_name(bits) + ", offload",
                      with(bits_sets(bits), "compression.offload=" + Json(folder).dump()),
                      bits_name(bits), config.compression.offload.empty()});
  return levels;
}

Config with_level(const Config& config, const PlanLevel& level) {
  Config plain = config;
  plain.compression.offload.clear();
  plain.train.checkpointing = false;
  Json document = to_json(plain);
  remove_keys_of_presets(document);
  apply_sets(document, level.sets);
  Config with = parse_config(document);
  with.distributed.ranks = config.distributed.ranks;
  with.data.opened = config.data.opened;
  return with;
}

PlanSteps::PlanSteps(const Config& config) {
  Config resolved = config;
  resolve(resolved);
  MetaRun run = meta_run(resolved);
  run.counts_kernels = counts_kernels(resolved);
  meta_ = std::make_unique<MetaStep>(run, resolved.data.batch_size);
}

namespace {

// How the steps of a level keep activations.
struct KeptOnMeta {
  explicit KeptOnMeta(Config& level) {
    resolve(level);
    level.compression.entropy = false;
    policy =
        make_policy(make_choice(level.compression), kMeta, static_cast<uint64_t>(level.run.seed));
    blocks = checkpointed_blocks(level.train);
    const auto planner = make_planner(level);
    if (planner == nullptr) return;
    planner->adopt(*train::PolicyParts(*policy).budget);
    blocks = planner->settings().checkpointed_blocks;
  }
  std::unique_ptr<SavePolicy> policy;
  int64_t blocks = 0;
};

}  // namespace

StepMemory PlanSteps::step(Config level) {
  const KeptOnMeta kept(level);
  return meta_->step(kept.policy.get(), level.data.batch_size, kept.blocks);
}

StepRecord PlanSteps::record(Config level) {
  const KeptOnMeta kept(level);
  return meta_->record(*kept.policy, level.data.batch_size, kept.blocks);
}

// An eighth of what a step saves stays in memory.
std::vector<LevelMemory> memory_of_levels(const Config& config, PlanSteps& steps) {
  return level_rows<LevelMemory>(
      config, false, [&](LevelMemory& row, const Config& level) { row.memory = steps.step(level); },
      [](const LevelMemory& without) { return window_of(without.memory.saved() / 8); });
}

std::string text_of(const std::vector<LevelMemory>& levels) {
  std::vector<std::vector<std::string>> rows = {
      {"", "saved", "packed", "peak", "params", "grads", "optim", "acts", "other"}};
  std::string reasons;
  for (const LevelMemory& level : levels) {
    if (!level.why.empty()) {
      reasons += fmt::format("{}: {}\n", level.name, level.why);
      continue;
    }
    if (level.idle) continue;
    std::vector<std::string>& row = rows.emplace_back();
    const StepMemory& m = level.memory;
    row = {level.name};
    for (const int64_t bytes : {m.saved(), m.packed, m.peak, bytes_of(m, Category::parameter),
                                bytes_of(m, Category::gradient), bytes_of(m, Category::optimizer),
                                bytes_of(m, Category::activation) + bytes_of(m, Category::packed),
                                bytes_of(m, Category::workspace) + bytes_of(m, Category::input)})
      row.push_back(short_bytes(bytes));
  }
  return table(rows) +
         "saved: activations when backward begins; packed: those of them in codes\n"
         "peak: the highest total of a step; of it parameters, gradients, state of the\n"
         "optimizer, activations, and other: workspace and batches. K, M, G: 2^10, ...\n" +
         idle_text(levels, "left out, as these do not lower the peak") + reasons;
}

Json to_json(const std::vector<LevelMemory>& levels) {
  Json list = Json::array();
  for (const LevelMemory& level : levels) {
    Json row = {{"name", level.name}, {"set", level.set}, {"memory", nullptr}};
    if (level.why.empty()) {
      row["memory"] = memory_json(level.memory);
      row["memory"].erase("host_peak_rss");
      if (!level.without.empty()) row["lowers_peak"] = !level.idle;
    } else {
      row["why"] = level.why;
    }
    list.push_back(row);
  }
  return list;
}

std::vector<LargestOfLevel> largest_of_levels(const Config& config, Growth growth, int64_t memory,
                                              bool only) {
  if (only && !config.compression.memory_budget.empty())
    throw ConfigError("compression.memory_budget",
                      "expected none with --only, which asks for the largest of the configuration "
                      "itself");
  LargestSearch search(config, growth);
  return level_rows<LargestOfLevel>(
      config, only,
      [&](LargestOfLevel& row, const Config& level) { row.largest = search.find(level, memory); },
      [&](const LargestOfLevel&) { return window_of(memory / 8); });
}

std::string text_of(const std::vector<LargestOfLevel>& levels, const std::string& what) {
  std::vector<std::vector<std::string>> rows = {{"", what, "peak", "times whole"}};
  std::string reasons;
  int64_t whole = 0;
  for (const LargestOfLevel& level : levels)
    if (level.name == bits_name(0)) whole = level.largest.value;
  for (const LargestOfLevel& level : levels) {
    if (!level.why.empty()) {
      reasons += fmt::format("{}: {}\n", level.name, level.why);
      continue;
    }
    if (level.idle) continue;
    const int64_t value = level.largest.value;
    rows.push_back(
        {level.name, value > 0 ? std::to_string(value) : "none", readable_bytes(level.largest.peak),
         value > 0 && whole > 0
             ? fmt::format("{:.2f}", static_cast<double>(value) / static_cast<double>(whole))
             : "-"});
  }
  return table(rows) + idle_text(levels, "left out, as these fit no larger one") + reasons;
}

Json to_json(const std::vector<LargestOfLevel>& levels) {
  Json list = Json::array();
  for (const LargestOfLevel& level : levels) {
    Json row = {{"name", level.name}, {"set", level.set}};
    if (level.why.empty()) {
      row["largest"] = level.largest.value > 0 ? Json(level.largest.value) : Json(nullptr);
      row["peak_bytes"] = level.largest.peak;
      row["limited"] = level.largest.limited;
      if (!level.without.empty()) row["fits_more"] = !level.idle;
    } else {
      row["why"] = level.why;
    }
    list.push_back(row);
  }
  return list;
}

}  // namespace frugal::apps
