#include "apps/cli/plan_text.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "apps/cli/report.h"
#include "apps/config/keys/keys_of_options.h"
#include "apps/config/planned_run.h"
#include "apps/text/wrapped.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

int64_t bytes_of(const StepMemory& memory, Category category) {
  return memory.at_peak[static_cast<size_t>(category)];
}

std::string row_name(const train::Way& way) {
  return way.kind == train::Way::own ? "this config" : way.name;
}

Json row_json(const train::Way& way) {
  std::string set;
  for (const std::string& key : keys_of(way)) set += (set.empty() ? "--set " : " --set ") + key;
  return {{"name", row_name(way)}, {"set", set}};
}

// Names of rows that are left out, for people.
template <class Row>
std::string idle_text(const std::vector<Row>& rows, const char* what) {
  std::vector<std::string> words;
  for (const Row& row : rows)
    if (row.idle) {
      if (!words.empty()) words.back() += ";";
      words.push_back(row.way.name);
    }
  if (words.empty()) return "";
  std::string text = fmt::format("{}:", what);
  for (const std::string& word : words) {
    if (text.size() - text.rfind('\n') - 1 + 1 + word.size() > 80) text += "\n ";
    text += " " + word;
  }
  return text + "\n";
}

// "--set PATH=VALUE" each.
std::vector<std::string> set_words(const Recommended& given) {
  const Recommendation& found = given.found;
  std::vector<std::string> words;
  if (!found.row().preset.empty())
    words.push_back("--set compression.preset=" + found.row().preset);
  for (const std::string& key : keys_of(found.row(), given.config)) words.push_back("--set " + key);
  if (found.test_batch)
    words.push_back(fmt::format("--set data.test_batch_size={}", *found.test_batch));
  return words;
}

std::string reason(const Recommended& given) {
  const Recommendation& found = given.found;
  const Recommendation::Row& row = found.row();
  const std::string memory = fmt::format("{} ({})", readable_bytes(found.memory), given.from);
  const std::string peak = readable_bytes(row.peak);
  if (row.preset.empty()) {
    const std::string budget =
        !row.changes() ? "compression.memory_budget as it is" : "a budget of that memory";
    const std::string takes = fmt::format("{}: its plan takes {}, kernels included", budget, peak);
    if (found.fits && !row.changes()) return fmt::format("{}, and fits into {}", takes, memory);
    if (found.fits)
      return fmt::format("{}; the budget of the configuration takes {}, and does not fit into {}",
                         takes, readable_bytes(found.rows.front().peak), memory);
    return fmt::format(
        "{}, which does not fit into {}, and there is no plan for a budget of that memory. A "
        "smaller data.batch_size takes less",
        takes, memory);
  }
  if (found.fits && !row.changes())
    return fmt::format("{}: its peak, {}, fits into {}", row.what, peak, memory);
  if (found.fits)
    return fmt::format("no preset alone fits into {}; with these keys a step takes {}", memory,
                       peak);
  return fmt::format(
      "no preset fits into {}: a step of this one takes {}{}. A smaller data.batch_size takes less",
      memory, peak, row.peak <= found.memory ? ", but evaluations take more" : ", the least");
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace

std::string text_of(const std::vector<WayMemory>& ways) {
  std::vector<std::vector<std::string>> rows = {
      {"", "saved", "packed", "peak", "params", "grads", "optim", "acts", "other"}};
  std::string reasons;
  for (const WayMemory& each : ways) {
    if (!each.why.empty()) {
      reasons += fmt::format("{}: {}\n", row_name(each.way), with_keys(each.why));
      continue;
    }
    if (each.idle) continue;
    std::vector<std::string>& row = rows.emplace_back();
    const StepMemory& m = each.memory;
    row = {row_name(each.way)};
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
         idle_text(ways, "left out, as these do not lower the peak") + reasons;
}

Json to_json(const std::vector<WayMemory>& ways) {
  Json list = Json::array();
  for (const WayMemory& each : ways) {
    Json row = row_json(each.way);
    row["memory"] = nullptr;
    if (each.why.empty()) {
      row["memory"] = memory_json(each.memory);
      row["memory"].erase("host_peak_rss");
      if (!each.way.without.empty()) row["lowers_peak"] = !each.idle;
    } else {
      row["why"] = with_keys(each.why);
    }
    list.push_back(row);
  }
  return list;
}

std::string text_of(const std::vector<LargestOfWay>& ways, const std::string& what) {
  std::vector<std::vector<std::string>> rows = {{"", what, "peak", "times whole"}};
  std::string reasons;
  int64_t whole = 0;
  for (const LargestOfWay& each : ways)
    if (each.way.kind == train::Way::bits && each.way.choice.bits() == 0 &&
        each.way.without.empty())
      whole = each.largest.value;
  for (const LargestOfWay& each : ways) {
    if (!each.why.empty()) {
      reasons += fmt::format("{}: {}\n", row_name(each.way), with_keys(each.why));
      continue;
    }
    if (each.idle) continue;
    const int64_t value = each.largest.value;
    rows.push_back({row_name(each.way), value > 0 ? std::to_string(value) : "none",
                    readable_bytes(each.largest.peak),
                    value > 0 && whole > 0 ? fmt::format("{:.2f}", static_cast<double>(value) /
                                                                       static_cast<double>(whole))
                                           : "-"});
  }
  return table(rows) + idle_text(ways, "left out, as these fit no larger one") + reasons;
}

Json to_json(const std::vector<LargestOfWay>& ways) {
  Json list = Json::array();
  for (const LargestOfWay& each : ways) {
    Json row = row_json(each.way);
    if (each.why.empty()) {
      row["largest"] = each.largest.value > 0 ? Json(each.largest.value) : Json(nullptr);
      row["peak_bytes"] = each.largest.peak;
      row["limited"] = each.largest.limited;
      if (!each.way.without.empty()) row["fits_more"] = !each.idle;
    } else {
      row["why"] = with_keys(each.why);
    }
    list.push_back(row);
  }
  return list;
}

std::string text_of(const Recommended& given, const std::vector<WayMemory>& ways) {
  std::vector<std::string> sets = set_words(given);
  if (sets.empty()) sets.emplace_back(given.found.fits ? "this config" : "nothing fits");
  sets.insert(sets.begin(), "recommended:");
  std::string text = fmt::format("{}\n{}\n", wrapped(sets), wrapped(words_of(reason(given))));
  if (given.found.fits) return text;
  const auto fitting = std::find_if(ways.begin(), ways.end(), [&](const WayMemory& each) {
    return each.why.empty() && each.memory.peak <= given.found.memory && !keys_of(each.way).empty();
  });
  if (fitting == ways.end()) return text;
  std::vector<std::string> words = words_of(fmt::format(
      "a step of \"{}\" takes {}:", row_name(fitting->way), readable_bytes(fitting->memory.peak)));
  for (const std::string& key : keys_of(fitting->way)) words.push_back("--set " + key);
  return text + wrapped(words) + "\n";
}

Json to_json(const Recommended& given) {
  const Recommendation& found = given.found;
  const auto preset_of = [](const Recommendation::Row& row) {
    return row.preset.empty() ? Json(nullptr) : Json(row.preset);
  };
  Json rows = Json::array();
  for (const Recommendation::Row& row : found.rows)
    rows.push_back({{"preset", preset_of(row)},
                    {"with", keys_of(row, given.config)},
                    {"activation_bytes", row.activations},
                    {"peak_bytes", row.peak}});
  return {{"preset", preset_of(found.row())},
          {"with", keys_of(found.row(), given.config)},
          {"fits", found.fits},
          {"set", fmt::to_string(fmt::join(set_words(given), " "))},
          {"reason", reason(given)},
          {"memory_bytes", found.memory},
          {"memory_from", given.from},
          {"presets", rows}};
}

}  // namespace frugal::apps
