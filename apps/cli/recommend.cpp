#include "apps/cli/recommend.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "apps/config/level_keys.h"
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

std::string set_text(const Recommendation& found) {
  return "--set compression.preset=" + found.preset +
         (found.test_batch ? fmt::format(" --set data.test_batch_size={}", *found.test_batch) : "");
}

std::string reason(const Recommendation& found) {
  const auto& row =
      *std::find_if(found.rows.begin(), found.rows.end(),
                    [&](const Recommendation::Row& each) { return each.preset == found.preset; });
  const std::string memory = fmt::format("{} ({})", readable_bytes(found.memory), found.from);
  if (found.fits)
    return fmt::format("{}: its peak, {}, fits into {}", row.what, readable_bytes(row.peak),
                       memory);
  return fmt::format(
      "no preset fits into {}: a step of this one takes {}{}. A smaller data.batch_size or "
      "train.checkpointing=true takes less",
      memory, readable_bytes(row.peak),
      row.peak <= found.memory ? ", but evaluations take more" : ", the least");
}

// The text in lines of at most 80 columns.
std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string all, line;
  for (std::string word; words >> word; line += (line.empty() ? "" : " ") + word)
    if (line.size() + 1 + word.size() > 80) {
      all += line + "\n";
      line.clear();
    }
  return all + line;
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

Recommendation recommend(const Config& config, std::optional<int64_t> memory, PlanSteps& steps) {
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
  for (const Preset& preset : presets()) {
    if (preset.of_paper) continue;
    const Config with =
        with_level(config, {preset.name, {fmt::format("compression.preset={}", preset.name)}});
    const StepMemory step = steps.step(with);
    found.rows.push_back({preset.name, preset.what, step.saved(), step.peak});
    // An evaluation packs nothing. It takes less with a smaller batch.
    int64_t test_batch = with.data.test_batch_size;
    while (test_batch > 1 && steps.evaluation(test_batch) > found.memory) test_batch /= 2;
    const bool fits = step.peak <= found.memory && steps.evaluation(test_batch) <= found.memory;
    if (!fits || found.fits) continue;
    found.fits = true;
    found.preset = preset.name;
    if (test_batch < with.data.test_batch_size) found.test_batch = test_batch;
  }
  if (!found.fits)  // the lowest peak; of equal ones the first
    found.preset =
        std::min_element(found.rows.begin(), found.rows.end(), [](const auto& a, const auto& b) {
          return a.peak < b.peak;
        })->preset;
  return found;
}

std::string text_of(const Recommendation& found) {
  return fmt::format("recommended: {}\n{}\n", set_text(found), wrapped(reason(found)));
}

Json to_json(const Recommendation& found) {
  Json rows = Json::array();
  for (const Recommendation::Row& row : found.rows)
    rows.push_back(
        {{"preset", row.preset}, {"activation_bytes", row.activations}, {"peak_bytes", row.peak}});
  return {{"preset", found.preset},  {"fits", found.fits},           {"set", set_text(found)},
          {"reason", reason(found)}, {"memory_bytes", found.memory}, {"memory_from", found.from},
          {"presets", rows}};
}

}  // namespace frugal::apps
