#include "apps/cli/report.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "apps/cli/progress.h"
#include "apps/cli/version.h"
#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/keys_of_options.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_model.h"
#include "apps/config/train_options.h"
#include "apps/text/wrapped.h"
#include "apps/whole_number.h"
#include "compress/policies/policy_kind.h"
#include "train/metrics/metric_names.h"
#include "train/planning/planner.h"

namespace frugal::apps {
namespace {

thread_local Json* taker = nullptr;  // TakenJson::document

constexpr const char* kProcessNote =
    "peak memory: of tensors, in a training step; whole process: with the program and\n"
    "its libraries, the data set, buffers of loading, evaluation and checkpoints, and\n"
    "freed memory kept for reuse\n";

// A value of this run divided by the value of the first run. Below 1 is less memory or less time.
std::string ratio(const Json& summary, const Json& first, const Json::json_pointer& key) {
  const double a = first.at(key).get<double>(), b = summary.at(key).get<double>();
  return &summary == &first || a <= 0 ? "" : fmt::format(" ({:.2f}x)", b / a);
}

}  // namespace

TakenJson::TakenJson() : previous_(std::exchange(taker, &document)) {}
TakenJson::~TakenJson() { taker = previous_; }

void print_json(const Json& document, bool ascii) {
  if (taker != nullptr)
    *taker = document;
  else
    std::printf("%s\n", document.dump(2, ' ', ascii, Json::error_handler_t::replace).c_str());
}

Json memory_json(const StepMemory& memory) {
  Json at_peak = Json::object();
  for (size_t i = 0; i < kCategories; ++i)
    at_peak[std::string(name_of(static_cast<Category>(i)))] = memory.at_peak[i];
  return {{"activation_bytes", memory.saved()},
          {"packed_bytes", memory.packed},
          {"peak_bytes", memory.peak},
          {"at_peak", at_peak},
          {"host_peak_rss", host_peak_rss()}};
}

Json to_json(const Evaluation& evaluation, const BatchSpec& spec) {
  Json json = {{"loss", evaluation.loss}, {"samples", evaluation.samples}};
  if (train::has_accuracy(spec.target)) json["accuracy"] = evaluation.accuracy;
  if (evaluation.metric) json[spec.metric] = *evaluation.metric;
  for (const auto& [name, value] : evaluation.details) json["details"][name] = value;
  return json;
}

Json to_json(const Convergence& c) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json json = {{"gradient_square", c.gradient_square},
               {"mean_gradient_square", c.mean_gradient_square},
               {"minibatch_variance", c.minibatch_variance},
               {"added_variance", c.added_variance},
               {"squared_bias", or_null(c.squared_bias)},
               {"added_share", c.added_share},
               {"bias_share", or_null(c.bias_share)},
               {"smoothness", c.smoothness},
               {"alpha", or_null(c.alpha)},
               {"bound", or_null(c.bound)},
               {"bound_uncompressed", or_null(c.bound_uncompressed)},
               {"bound_applies", or_null(c.bound_applies)},
               {"bits", or_null(c.bits)},
               {"next_bits", or_null(c.next_bits)}};
  if (c.guard_limited) json["guard_limited"] = *c.guard_limited;
  return json;
}

Json to_json(const std::optional<Convergence>& convergence) {
  return convergence ? to_json(*convergence) : Json(nullptr);
}

Json to_json(const Compression::Widths& widths) {
  Json sensitivities = Json::array();
  for (const auto& value : widths.sensitivities)
    sensitivities.push_back(value ? Json(*value) : Json(nullptr));
  return {{"average_bits", widths.average_bits},
          {"predicted_variance", widths.predicted_variance},
          {"bits", widths.bits},
          {"seqs", widths.seqs},
          {"sensitivities", sensitivities}};
}

Json to_json(const PlanReport& plan) {
  return {{"kind", plan.kind},
          {"limit_bytes", plan.limit_bytes},
          {"of", plan.of_activations ? "activations" : "peak"},
          {"peak_bytes", plan.peak_bytes},
          {"reserve_bytes", plan.reserve_bytes},
          {"activation_bytes", plan.activation_bytes},
          {"predicted_variance", plan.predicted_variance},
          {"average_bits", plan.average_bits},
          {"tensors", plan.tensors},
          {"raw_tensors", plan.raw_tensors},
          {"kept_recipes", plan.kept_recipes},
          {"entropy_saved_bytes", plan.entropy_saved_bytes},
          {"moved_before", plan.moved_before},
          {"slice_bytes", plan.slice_bytes},
          {"waiting_bits", plan.waiting_bits},
          {"checkpointed_blocks",
           plan.checkpointed_blocks == kAllBlocks ? Json("all") : Json(plan.checkpointed_blocks)},
          {"margin_bytes", plan.margin_bytes},
          {"feasible", plan.feasible}};
}

Json summary_json(const Config& config, const RunState& state, const Speed& speed,
                  const std::optional<compress::OffloadStats>& offload) {
  const EpochResult last = state.last.value_or(EpochResult{});
  const EpochResult best = state.best.value_or(EpochResult{});
  const BatchSpec spec = batch_spec(config);
  Json summary = {{"final", {{"train_loss", last.train_loss}, {"test_loss", last.test.loss}}},
                  {"best",
                   {{"epoch", best.epoch},
                    {"step", best.step},
                    {"train_loss", best.train_loss},
                    {"test_loss", best.test.loss}}},
                  {"memory", memory_json(state.memory)},
                  {"speed",
                   {{"samples_per_second", speed.samples_per_second},
                    {"unit", speed.unit},
                    {"units_per_second", speed.units_per_second},
                    {"step_ms_median", speed.step_ms_median},
                    {"adaptation_share", speed.adaptation_share},
                    {"tracking_share", speed.tracking_share}}},
                  {"steps", state.step},
                  {"epochs", last.epoch},
                  {"ended", state.ended},
                  {"seed", config.run.seed},
                  {"config_sha256", config_sha256(config)},
                  {"version", kVersion}};
  if (config.optim.ema > 0) summary["final"]["weights"] = "last_average.safetensors";
  if (!state.kept.empty()) {
    summary["kept"] = Json::array();
    for (const EpochResult& kept : state.kept)
      summary["kept"].push_back({{"file", "checkpoint/" + RunFolder::kept_name(kept.step)},
                                 {"epoch", kept.epoch},
                                 {"step", kept.step},
                                 {"test_loss", kept.test.loss}});
  }
  if (train::has_accuracy(spec.target)) {
    summary["final"]["test_accuracy"] = last.test.accuracy;
    summary["best"]["test_accuracy"] = best.test.accuracy;
    for (size_t i = 0; i < state.kept.size(); ++i)
      summary["kept"][i]["test_accuracy"] = state.kept[i].test.accuracy;
  }
  if (last.test.metric) {
    const std::string name = "test_" + spec.metric;
    summary["final"][name] = *last.test.metric;
    summary["best"][name] = *best.test.metric;
  }
  if (best.validation) {
    summary["final"]["validation"] = to_json(*last.validation, spec);
    summary["best"]["validation"] = to_json(*best.validation, spec);
  }
  if (offload)
    summary["offload"] = {{"written_bytes", offload->written},
                          {"read_bytes", offload->read},
                          {"pack_wait_seconds", offload->pack_seconds},
                          {"unpack_wait_seconds", offload->unpack_seconds}};
  return summary;
}

Json to_json(const RanksReport& report) {
  return {{"ranks", report.ranks},           {"communication_share", report.communication},
          {"waiting_share", report.waiting}, {"hidden_share", report.hidden()},
          {"imbalance", report.imbalance},   {"gradient_bytes_per_step", report.step_bytes}};
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  // Where a line would be too wide, names that leave no room have one of their own.
  constexpr size_t kLeast = 8;
  const size_t others = std::accumulate(widths.begin() + 1, widths.end(), 2 * (widths.size() - 1));
  if (others + kLeast <= kColumns) widths[0] = std::min(widths[0], kColumns - others);
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    if (rows[r][0].size() > widths[0]) text += rows[r][0] + "\n";
    for (size_t i = 0; i < rows[r].size(); ++i)
      line +=
          i == 0 ? fmt::format("{:<{}}", rows[r][0].size() > widths[0] ? "" : rows[r][0], widths[0])
                 : fmt::format("  {:>{}}", rows[r][i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    if (r > 0) continue;
    text += std::string(widths[0], '-');
    for (size_t i = 1; i < widths.size(); ++i) text += "  " + std::string(widths[i], '-');
    text += "\n";
  }
  return text;
}

std::string summary_table(const std::vector<std::string>& names,
                          const std::vector<Json>& summaries) {
  using Pointer = Json::json_pointer;
  std::vector<std::vector<std::string>> rows(1);
  rows[0] = {""};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  auto add = [&](const std::string& title, auto cell) {
    std::vector<std::string> row{title};
    for (const Json& summary : summaries) row.push_back(cell(summary));
    rows.push_back(row);
  };
  auto bytes = [&](const std::string& title, const std::string& key, bool with_ratio) {
    const Pointer pointer(key);
    add(title, [&](const Json& s) {
      return readable_bytes(whole_number(s.at(pointer))) +
             (with_ratio ? ratio(s, summaries[0], pointer) : "");
    });
  };
  auto number = [&](const std::string& title, const std::string& key, const char* format,
                    double factor) {
    const Pointer pointer(key);
    add(title, [&](const Json& s) {
      return fmt::format(fmt::runtime(format), factor * s.at(pointer).get<double>());
    });
  };
  // Runs may have been measured by different metrics: a row says "-" for a run without its own.
  const std::vector<train::MetricName>& metrics = train::known_metrics();
  const auto has = [](const Json& s, const train::MetricName& metric) {
    return s.contains(Pointer("/final/test_" + std::string(metric.name)));
  };
  const auto counts_right = [&](const Json& s) {
    return s.contains(Pointer("/final/test_accuracy")) &&
           std::none_of(metrics.begin(), metrics.end(), [&](const auto& metric) {
             return has(s, metric) && !metric.has_accuracy();
           });
  };
  if (std::any_of(summaries.begin(), summaries.end(), counts_right))
    for (const char* which : {"final", "best"}) {
      const Pointer key(fmt::format("/{}/test_accuracy", which));
      add(which == std::string_view("best") ? "best test accuracy" : "test accuracy",
          [&](const Json& s) {
            return counts_right(s) ? fmt::format("{:.2f} %", 100 * s.at(key).get<double>())
                                   : std::string("-");
          });
    }
  for (const train::MetricName& metric : metrics) {
    if (std::none_of(summaries.begin(), summaries.end(),
                     [&](const Json& s) { return has(s, metric); }))
      continue;
    for (const char* which : {"final", "best"}) {
      const Pointer key(fmt::format("/{}/test_{}", which, metric.name));
      add(fmt::format("{}test {}", which == std::string_view("best") ? "best " : "", metric.name),
          [&](const Json& s) {
            if (!s.contains(key)) return std::string("-");
            // JSON has no infinity, which a perplexity may be.
            return s.at(key).is_null() ? "inf" : fmt::format("{:.4f}", s.at(key).get<double>());
          });
    }
  }
  number("test loss", "/final/test_loss", "{:.4f}", 1);
  number("train loss", "/final/train_loss", "{:.4f}", 1);
  bytes("activation memory", "/memory/activation_bytes", true);
  bytes("  of it packed", "/memory/packed_bytes", false);
  bytes("peak memory", "/memory/peak_bytes", true);
  for (int i = 0; i < kCategories; ++i) {
    const std::string category(name_of(static_cast<Category>(i)));
    bytes("  " + category + " at peak", "/memory/at_peak/" + category, false);
  }
  bytes("whole process, highest", "/memory/host_peak_rss", true);
  const Pointer ms("/speed/step_ms_median");
  add("step time, median", [&](const Json& s) {
    return fmt::format("{:.1f} ms", s.at(ms).get<double>()) + ratio(s, summaries[0], ms);
  });
  const Pointer unit("/speed/unit");  // summaries of earlier versions have none
  const auto counts = [&](const Json& s) {
    return s.contains(unit) && s.at(unit) == summaries[0].value(unit, "");
  };
  const bool all_count = std::all_of(summaries.begin(), summaries.end(), counts);
  const Pointer rate(all_count ? "/speed/units_per_second" : "/speed/samples_per_second");
  const std::string what = all_count ? summaries[0].at(unit).get<std::string>() : "samples";
  add(what + " per second", [&](const Json& s) {
    const double value = s.at(rate).get<double>();
    return value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
  });
  number("steps", "/steps", "{:.0f}", 1);
  const Pointer ended("/ended");  // summaries of earlier versions have none
  if (summaries[0].contains(ended))
    add("ended by", [&](const Json& s) {
      return s.contains(ended) ? s.at(ended).get<std::string>() : std::string("-");
    });
  const auto tracks = [](const Json& s) {
    return s.contains("convergence") && !s["convergence"].is_null();
  };
  if (std::any_of(summaries.begin(), summaries.end(), tracks)) {
    auto estimate = [&](const std::string& title, auto cell) {
      add(title,
          [&](const Json& s) { return tracks(s) ? cell(s["convergence"]) : std::string("-"); });
    };
    auto value = [](const Json& c, const char* key) { return c.at(key).get<double>(); };
    estimate("minibatch variance of gradients",
             [&](const Json& c) { return fmt::format("{:.3g}", value(c, "minibatch_variance")); });
    estimate("  compression adds",
             [&](const Json& c) { return fmt::format("{:.2f} %", 100 * value(c, "added_share")); });
    estimate("    by squared bias", [&](const Json& c) {
      const auto share = c.find("bias_share");  // summaries of earlier versions have none
      if (share == c.end() || share->is_null()) return std::string("-");
      return fmt::format("{:.2f} %", 100 * value(c, "bias_share"));
    });
    estimate("smoothness along the steps",
             [&](const Json& c) { return fmt::format("{:.3g}", value(c, "smoothness")); });
    estimate("mean |gradient|^2", [&](const Json& c) {
      return fmt::format("{:.3g}", value(c, "mean_gradient_square"));
    });
    estimate("  bound of theorem 2", [&](const Json& c) {
      if (c.at("bound").is_null())
        return std::string("-");  // only SGD has one, of losses of at least 0
      return fmt::format("{:.3g}{}", value(c, "bound"),
                         c.at("bound_applies").get<bool>() ? "" : " (steps too long)");
    });
  }
  const auto has_ranks = [](const Json& s) { return s.contains("ranks"); };
  if (std::any_of(summaries.begin(), summaries.end(), has_ranks)) {
    const auto of_ranks = [&](const std::string& title, auto cell) {
      add(title, [&](const Json& s) { return has_ranks(s) ? cell(s["ranks"]) : std::string("-"); });
    };
    const auto share = [](const Json& r, const char* key) {
      return fmt::format("{:.1f} %", 100 * r.at(key).get<double>());
    };
    of_ranks("ranks", [&](const Json& r) { return std::to_string(whole_number(r.at("ranks"))); });
    of_ranks("  adding up gradients, of a step",
             [&](const Json& r) { return share(r, "communication_share"); });
    of_ranks("  waiting for that", [&](const Json& r) { return share(r, "waiting_share"); });
    of_ranks("  slowest over mean rank", [&](const Json& r) { return share(r, "imbalance"); });
  }
  const auto offloads = [](const Json& s) { return s.contains("offload"); };
  if (!std::any_of(summaries.begin(), summaries.end(), offloads)) return table(rows) + kProcessNote;
  add("written to the file", [&](const Json& s) {
    return offloads(s) ? readable_bytes(whole_number(s.at(Pointer("/offload/written_bytes"))))
                       : "-";
  });
  add("  waited for it", [&](const Json& s) {
    if (!offloads(s)) return std::string("-");
    const Json& o = s.at("offload");
    return fmt::format("{:.1f} s", o.at("pack_wait_seconds").get<double>() +
                                       o.at("unpack_wait_seconds").get<double>());
  });
  return table(rows) + kProcessNote;
}

std::string noise_text(const Json& convergence, int64_t step) {
  const auto number = [&](const char* key) { return convergence.at(key).get<double>(); };
  std::string text = fmt::format("step {}: compression adds {:.2f} % to the gradient's variance",
                                 step, 100 * number("added_share"));
  if (convergence.at("bias_share").is_number())
    text += fmt::format(" (squared bias: {:.2f} %)", 100 * number("bias_share"));
  if (convergence.at("bits").is_number()) {
    text += fmt::format(" at {:.4g} bits", number("bits"));
    if (convergence.at("next_bits") != convergence.at("bits"))
      text += fmt::format(", {:.4g} from now on", number("next_bits"));
  }
  if (convergence.at("bound").is_number())
    text += fmt::format("; bound of theorem 2 {:.3g}", number("bound"));
  return text;
}

namespace {

std::string compress_more(const CompressionConfig& config) {
  if (config.policy == PolicyKind::budget)
    return fmt::format("compression.memory_budget (now {})", config.memory_budget);
  if (config.policy == PolicyKind::acgc)
    return fmt::format("a higher compression.acgc.growth (now {})", config.acgc.e);
  if (config.bits > 0 && config.bits <= 2) return "";
  return fmt::format("fewer compression.bits (now {}): {}", config.bits,
                     config.bits == 0 ? "4 or 2" : "2, or an average such as 2.5");
}

}  // namespace

std::string kept_gradients(const Config& config, const Planner* plan) {
  constexpr int64_t kLittle = int64_t{32} << 20;
  if (config.train.in_backward) return "";
  train::UpdateTime time = update_time(config);
  if (plan != nullptr && plan->settings().checkpointed_blocks > 0) time.recomputes = true;
  const std::string why = keeps_gradients(time);
  if (why.empty()) return "";
  const auto model = make_model(config, batch_spec(config), kMeta);
  int64_t bytes = 0;
  for (const auto& p : model->parameters())
    if (p.parameter->requires_grad()) bytes += p.parameter->value().nbytes();
  if (bytes < kLittle) return "";
  return wrapped(fmt::format("gradients ({}) are kept until a step ends: {}", readable_bytes(bytes),
                             with_keys(why)));
}

std::string explain(const OutOfMemory& error, const Config& config) {
  std::string text = error.what();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  // Names a remedy for the largest part. A smaller batch helps against all parts except those of
  // the weights.
  const MemoryReport& held = error.report;
  const int64_t weights =
      held.of(Category::parameter) + held.of(Category::gradient) + held.of(Category::optimizer);
  std::vector<std::string> ways;
  const auto batch = [&] {
    if (config.data.batch_size > 1 && is_read(config, "data.batch_size"))
      ways.push_back(
          fmt::format("data.batch_size (now {}; train.gradient_accumulation makes up "
                      "for it)",
                      config.data.batch_size));
  };
  if (2 * weights <= held.live_total) batch();
  if (const std::string more = compress_more(config.compression); !more.empty())
    ways.push_back(more);
  if (2 * weights > held.live_total) {
    const train::UpdateTime time = update_time(config);
    if (!keeps_gradients(time).empty() && needs_gradients(time).empty())
      ways.emplace_back("optim.in_backward");
    if (config.optim.name.starts_with("adam") && config.optim.name != "adamw_8bit")
      ways.emplace_back("optim.name adamw_8bit");
    if (config.optim.name == "sgd" && config.optim.value("momentum").number() > 0)
      ways.emplace_back("optim.name sgd_8bit");
    batch();
  }
  if (!config.compression.recipes && is_read(config, "compression.recipes"))
    ways.emplace_back("compression.recipes");
  if (!config.train.checkpointing && is_read(config, "train.checkpointing"))
    ways.emplace_back("train.checkpointing");
  if (config.compression.offload.empty()) ways.emplace_back("compression.offload (a folder)");
  if (config.run.memory_limit > 0)
    ways.push_back(
        fmt::format("a higher memory_limit (now {})", readable_bytes(config.run.memory_limit)));
  return fmt::format("{}\nto need less, change: {}", text, fmt::join(ways, "; "));
}

std::string run_title(const Config& config) {
  const CompressionConfig& c = config.compression;
  const bool budget = c.policy == PolicyKind::budget || !c.memory_budget.empty();
  const std::string policy = budget                         ? "budget " + c.memory_budget
                             : c.policy == PolicyKind::acgc ? fmt::format("acgc e={}", c.acgc.e)
                             : c.policy == PolicyKind::gact
                                 ? level_text(c)
                                 : std::string(name_of(c.policy)) + " " + level_text(c);
  return config.model.name + ", " + policy + (c.recipes && !budget ? ", recipes" : "");
}

}  // namespace frugal::apps
