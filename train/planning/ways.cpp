#include "train/planning/ways.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <utility>

#include "compress/policies/choice.h"
#include "compress/policies/policy_kind.h"
#include "train/option_error.h"
#include "train/planning/largest.h"
#include "train/planning/way_steps.h"
#include "train/policy_parts.h"
#include "train/update_time.h"

namespace frugal::train {
namespace {

using compress::Choice;

// What the run says beside the options that a name stands for, and that its rows keep.
Choice beside(const PlannedRun& run, Choice choice) {
  const Choice& own = run.options.choice;
  choice.keep().chain = own.keep().chain;
  auto* const bounds = std::get_if<compress::AcgcOptions>(&choice.policy);
  const auto* const own_bounds = std::get_if<compress::AcgcOptions>(&own.policy);
  if (bounds != nullptr && own_bounds != nullptr) bounds->count = own_bounds->count;
  return choice;
}

std::string bits_name(int bits) { return bits == 0 ? "whole" : fmt::format("{} bits", bits); }

bool lowers(const WayMemory& row, const WayMemory& without) {
  return row.memory.peak < without.memory.peak;
}
bool lowers(const LargestOfWay& row, const LargestOfWay& without) {
  return row.largest.value > without.largest.value;
}

// A power of 2, from 1 MiB to what runs take without being told.
int64_t window_of(int64_t bytes) {
  constexpr int64_t kLeast = int64_t{1} << 20;
  const int64_t most = compress::OffloadOptions().window;
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp(bytes, kLeast, most))));
}

// A row of the run itself and of each way. `measure` fills a row by its way. `window_for` says how
// many bytes of a row without offload are to stay in memory.
template <class Row, class Measure, class WindowFor>
std::vector<Row> rows_of(const PlannedRun& run, bool only, const Measure& measure,
                         const WindowFor& window_for) {
  std::vector<Row> rows;
  const auto add = [&](const Way& way) {
    Row& row = rows.emplace_back();
    row.way = way;
    try {
      check(update_time(run.options.run, way.checkpointed_blocks));
      if (way.kind != Way::own && run.complete) run.complete(row.way);
      measure(row);
    } catch (const Error& e) {
      row.why = e.what();
    }
  };
  if (run.options.choice.memory_budget().empty()) add(own_way(run));
  if (only) return rows;
  for (Way& way : ways(run)) {
    const auto without = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return !way.without.empty() && row.way.name == way.without;
    });
    const bool compares = without != rows.end() && without->why.empty();
    const auto place = without - rows.begin();
    way.chooses_window = way.chooses_window && compares;
    if (way.chooses_window) way.choice.offload->window = window_of(window_for(*without));
    add(way);
    if (compares && rows.back().why.empty())
      rows.back().idle = !lowers(rows.back(), rows[static_cast<size_t>(place)]);
  }
  return rows;
}

}  // namespace

Way own_way(const PlannedRun& run) {
  return {.name = "own",
          .choice = run.options.choice,
          .checkpointed_blocks = run.options.checkpointed_blocks};
}

Way bits_way(const PlannedRun& run, int bits) {
  const compress::FixedPolicyOptions keep{.recipes = bits > 0};
  return {.kind = Way::bits,
          .name = bits_name(bits),
          .choice = beside(run, compress::bits(bits, keep))};
}

Way preset_way(const PlannedRun& run, const compress::Named& preset) {
  return {.kind = Way::preset,
          .name = std::string(preset.name),
          .named = std::string(preset.name),
          .choice = beside(run, preset.choice)};
}

std::vector<Way> ways(const PlannedRun& run) {
  const Choice& own = run.options.choice;
  std::vector<Way> all = {bits_way(run, 0)};
  all.push_back(preset_way(run, compress::presets().front()));  // lossless
  for (const int bits : {8, 4, 3, 2}) all.push_back(bits_way(run, bits));
  for (const compress::Named& preset : compress::presets().subspan(1))
    if (preset.of == compress::Named::preset) all.push_back(preset_way(run, preset));
  if (own.kind() == compress::PolicyKind::actnn)
    for (const compress::Named& level : compress::levels(compress::PolicyKind::actnn))
      if (level.same_as.empty() && level.choice.bits() > 0 && !level.offload)
        all.push_back({.kind = Way::level,
                       .name = fmt::format("actnn {}", level.name),
                       .named = std::string(level.name),
                       .choice = beside(run, level.choice)});
  if (own.kind() == compress::PolicyKind::acgc)
    for (const double growth : {0.25, 1.0, 4.0}) {
      compress::AcgcOptions bounds;
      bounds.e = growth;
      all.push_back({.kind = Way::growth,
                     .name = fmt::format("acgc, e = {}", growth),
                     .choice = beside(run, {.policy = bounds})});
    }
  const auto with = [&](int bits, const char* what) {
    Way& way = all.emplace_back(bits_way(run, bits));
    way.without = std::exchange(way.name, way.name + what);
    return &way;
  };
  if (run.options.run.has_blocks)
    for (const int bits : {0, 4, 2}) with(bits, ", recomputed")->checkpointed_blocks = kAllBlocks;
  for (const int bits : {0, 4, 2}) {
    Way& way = *with(bits, ", offload");
    way.chooses_window = !own.offload;
    way.choice.offload =
        own.offload ? *own.offload
                    : compress::OffloadOptions{.directory = std::filesystem::temp_directory_path()};
  }
  return all;
}

std::unique_ptr<SavePolicy> policy_on_meta(const Way& way, const PlannerOptions& options) {
  Choice choice = compress::on_device(way.choice, options.device);
  // Plans within a budget count on savings that were seen (planner.h), and else on none.
  if (!choice.memory_budget().empty()) choice.entropy = false;
  return compress::make_policy(choice, kMeta, options.seed);
}

WaySteps::WaySteps(const PlannedRun& run, const Savings& with) : options_(run.options) {
  MetaRun& meta = options_.run;
  meta.counts_kernels = run.counts_kernels;
  if (with.in_backward) meta.in_backward = true;
  if (with.in_8bit) meta.make_optimizer = run.make_8bit_optimizer;
  meta_ = std::make_unique<MetaStep>(meta, options_.batch);
}

StepMemory WaySteps::step(const Way& way, const Planner* plan) {
  const auto policy = policy_on_meta(way, options_);
  if (plan == nullptr) return meta_->step(policy.get(), options_.batch, way.checkpointed_blocks);
  plan->adopt(*PolicyParts(*policy).budget);
  return meta_->step(policy.get(), options_.batch, plan->settings().checkpointed_blocks);
}

StepMemory WaySteps::highest(const Way& way) {
  return meta_->highest(policy_on_meta(way, options_).get(), options_.batch,
                        way.checkpointed_blocks);
}

StepRecord WaySteps::record(const Way& way) {
  return meta_->record(*policy_on_meta(way, options_), options_.batch, way.checkpointed_blocks);
}

// An eighth of what a step saves stays in memory.
std::vector<WayMemory> memory_of_ways(const PlannedRun& run, WaySteps& steps) {
  return rows_of<WayMemory>(
      run, false, [&](WayMemory& row) { row.memory = steps.highest(row.way); },
      [](const WayMemory& without) { return without.memory.saved() / 8; });
}

std::vector<LargestOfWay> largest_of_ways(const PlannedRun& run, Growth growth, int64_t memory,
                                          bool only) {
  LargestSearch search(run, growth);
  return rows_of<LargestOfWay>(
      run, only, [&](LargestOfWay& row) { row.largest = search.find(row.way, memory); },
      [&](const LargestOfWay&) { return memory / 8; });
}

}  // namespace frugal::train
