#include "train/planning/recommend.h"

#include <algorithm>
#include <deque>
#include <fstream>

#include "train/option_error.h"
#include "train/update_time.h"

namespace frugal::train {
namespace {

constexpr int64_t kProgram = int64_t{64} << 20, kShareOfProgram = 16;

// A number of bytes in a file of the system; 0: there is none.
int64_t bytes_in(const char* path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes ? bytes : 0;
}

// What lowers the peak with any preset. The first list costs next to no time. The second recomputes
// blocks, which excludes updates in the backward pass.
std::vector<std::vector<Savings>> savings_of(const PlannedRun& run) {
  const MetaRun& own = run.options.run;
  const auto& ranks = own.ranks.communicator;
  const bool loses = own.ranks.compress_gradients > 0 && ranks != nullptr && ranks->size() > 1;
  const UpdateTime time = update_time(own, run.options.checkpointed_blocks);
  const bool updates = keeps_gradients(time).empty();
  const bool begins = !updates && needs_gradients(time).empty() && !loses;
  const bool has_8bit = run.make_8bit_optimizer != nullptr;
  std::vector<Savings> quick, slow;
  if (begins) quick.push_back({.in_backward = true});
  if (has_8bit && (begins || updates)) quick.push_back({.in_backward = begins, .in_8bit = true});
  const bool may_recompute = !own.in_backward.value_or(false);
  if (may_recompute) slow.push_back({.recomputed = true});
  if (may_recompute && has_8bit) slow.push_back({.recomputed = true, .in_8bit = true});
  return {quick, slow};
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

int64_t free_for_tensors() {
  const int64_t free = free_memory();
  return std::max<int64_t>(free - free / kShareOfProgram - kProgram, 0);
}

Recommendation recommend(const PlannedRun& run, int64_t memory, const Planner& plan) {
  Recommendation found;
  found.memory = memory;
  const auto add = [&](const Planner& of, int64_t budget) {
    const StepMemory& step = of.planned().memory;
    found.rows.push_back({.preset = {},
                          .what = {},
                          .budget = budget,
                          .activations = step.saved(),
                          .peak = step.peak + of.reserve()});
    if (found.rows.back().peak > memory) return;
    found.fits = true;
    found.chosen = found.rows.size() - 1;
    if (of.settings().test_batch < run.options.test_batch)
      found.test_batch = of.settings().test_batch;
  };
  add(plan, 0);
  PlannerOptions smaller = run.options;
  smaller.budget = {.bytes = memory >> 20 << 20};  // in whole MiB, as it is written
  if (found.fits || smaller.budget.bytes == 0) return found;
  try {
    add(Planner(smaller), smaller.budget.bytes);
  } catch (const OptionError&) {  // no plan is that small
  }
  return found;
}

Recommendation recommend(const PlannedRun& run, int64_t memory, WaySteps& steps) {
  Recommendation found;
  found.memory = memory;
  const int64_t blocks = run.options.checkpointed_blocks;
  const auto count = [&](const compress::Named& preset, const Savings& with, WaySteps& counted) {
    Way way = preset_way(run, preset);
    if (with.recomputed) way.checkpointed_blocks = blocks > 0 ? blocks : kAllBlocks;
    if (run.complete) run.complete(way);
    const StepMemory step = counted.highest(way);
    found.rows.push_back({.preset = std::string(preset.name),
                          .what = std::string(preset.summary),
                          .with = with,
                          .activations = step.saved(),
                          .peak = step.peak});
    if (found.fits || step.peak > memory) return;
    // An evaluation packs nothing. It takes less with a smaller batch.
    const int64_t own = run.options.test_batch, recomputed = way.checkpointed_blocks;
    int64_t test_batch = own;
    while (test_batch > 1 && counted.evaluation(test_batch, recomputed) > memory) test_batch /= 2;
    if (counted.evaluation(test_batch, recomputed) > memory) return;
    found.fits = true;
    found.chosen = found.rows.size() - 1;
    if (test_batch < own) found.test_batch = test_batch;
  };
  std::vector<compress::Named> ours;
  for (const compress::Named& preset : compress::presets())
    if (preset.of == compress::Named::preset) ours.push_back(preset);
  for (const compress::Named& preset : ours) count(preset, {}, steps);
  const auto lowest = [&] {  // the first one, if several are equal
    return std::min_element(found.rows.begin(), found.rows.end(),
                            [](const auto& a, const auto& b) { return a.peak < b.peak; });
  };
  if (lowest()->peak > memory)
    for (const std::vector<Savings>& list : savings_of(run)) {
      std::deque<WaySteps> with;
      for (const Savings& savings : list) with.emplace_back(run, savings);
      for (const compress::Named& preset : ours)
        for (size_t i = 0; i < list.size(); ++i)
          if (!found.fits) count(preset, list[i], with[i]);
    }
  if (!found.fits) found.chosen = static_cast<size_t>(lowest() - found.rows.begin());
  return found;
}

}  // namespace frugal::train
