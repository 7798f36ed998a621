#include "apps/report/run_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <type_traits>

#include "apps/cli/report.h"
#include "apps/whole_number.h"
#include "core/error.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

template <class T>
std::optional<T> number_in(const Json& value) {
  if (!value.is_number()) return {};
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(whole_number(value));
  else
    return value.get<T>();
}

template <class T>
std::optional<T> at(const Json& json, const std::string& pointer) {
  const Json::json_pointer place(pointer);
  return json.is_object() && json.contains(place) ? number_in<T>(json.at(place)) : std::nullopt;
}

bool is_of(const Json& line, const std::string& type) {
  return line.is_object() && line.value("type", Json()) == type && line.contains("step") &&
         line["step"].is_number();
}

std::string shape_text(const Json& extents) {
  std::string text;
  for (const Json& extent : extents)
    text += (text.empty() ? "" : " x ") + std::to_string(whole_number(extent));
  return text.empty() ? "1" : text;
}

// Times of the step; null: not known.
void read_tensors(const Json& line, const Json* times, RecordedStep& recorded) {
  const Json& columns = line.at("columns");
  const auto column = [&](const char* name) {
    const auto found = std::find(columns.begin(), columns.end(), name);
    FRUGAL_CHECK(found != columns.end(), "expected a column {} of tensors", name);
    return static_cast<size_t>(found - columns.begin());
  };
  const size_t layer = column("layer"), op = column("op"), seq = column("seq"),
               shape = column("shape"), how = column("how"), raw = column("raw_bytes"),
               stored = column("stored_bytes"), bits = column("bits"), error = column("error");
  const auto list = [&](const char* key) -> const Json* {
    if (times == nullptr || !times->is_object()) return nullptr;
    const auto found = times->find(key);
    return found == times->end() || !found->is_array() ? nullptr : &*found;
  };
  const auto time = [](const Json* all, size_t row) -> std::optional<double> {
    if (all == nullptr || all->size() <= row) return {};
    const auto value = number_in<double>((*all)[row]);
    return value && *value > 0 ? value : std::nullopt;
  };
  const Json *const pack = list("pack_ms"), *const unpack = list("unpack_ms");
  double packed_bytes = 0, packed_elements = 0;
  for (const Json& row : line.at("rows")) {
    TensorRow tensor;
    tensor.layer = row.at(layer).get<std::string>();
    tensor.op = row.at(op).get<std::string>();
    tensor.how = row.at(how).get<std::string>();
    tensor.seq = number_in<uint64_t>(row.at(seq));
    tensor.shape = shape_text(row.at(shape));
    tensor.elements = 1;
    for (const Json& extent : row.at(shape)) tensor.elements *= extent.get<double>();
    tensor.raw = whole_number(row.at(raw));
    tensor.stored = number_in<int64_t>(row.at(stored));
    tensor.bits = number_in<double>(row.at(bits));
    tensor.error = number_in<double>(row.at(error));
    tensor.pack_ms = time(pack, recorded.tensors.size());
    tensor.unpack_ms = time(unpack, recorded.tensors.size());
    if (tensor.how != "in memory") recorded.raw_bytes += static_cast<double>(tensor.raw);
    recorded.stored_bytes += static_cast<double>(tensor.stored.value_or(0));
    if (tensor.how == "packed" && tensor.stored) {
      packed_bytes += static_cast<double>(*tensor.stored);
      packed_elements += tensor.elements;
    }
    recorded.tensors.push_back(std::move(tensor));
  }
  if (packed_elements > 0) recorded.packed_bits = 8 * packed_bytes / packed_elements;
}

void read_recorded(const ReportRun& run, RunFacts& facts) {
  // An object of many keys finds one of them slowly.
  std::map<std::string_view, const Json*> times;
  if (run.tensor_times.is_object())
    for (auto step = run.tensor_times.begin(); step != run.tensor_times.end(); ++step)
      times.emplace(step.key(), &step.value());
  for (const Json& line : run.lines) {
    if (is_of(line, "memory")) {
      facts.recorded.push_back({whole_number(line["step"]), line, {}, 0, 0, {}});
    } else if (is_of(line, "tensors")) {
      const auto at_step = whole_number(line["step"]);
      if (facts.recorded.empty() || facts.recorded.back().step != at_step)
        facts.recorded.push_back({at_step, Json(), {}, 0, 0, {}});  // no memory line: offload
      const auto found = times.find(std::to_string(at_step));
      read_tensors(line, found == times.end() ? nullptr : found->second, facts.recorded.back());
    }
  }
}

void read_progress(const ReportRun& run, RunFacts& facts) {
  for (const Json& line : run.lines) {
    if (is_of(line, "step") || is_of(line, "epoch")) {
      facts.step = std::max(facts.step, whole_number(line["step"]));
      facts.epoch = std::max(facts.epoch, at<int64_t>(line, "/epoch").value_or(0));
    }
    if (is_of(line, "step"))
      if (const auto loss = at<double>(line, "/loss")) facts.train_loss = loss;
    if (is_of(line, "epoch")) {
      if (const auto loss = at<double>(line, "/train_loss")) facts.train_loss = loss;
      if (const auto loss = at<double>(line, "/test_loss")) facts.test_loss = loss;
      if (const auto right = at<double>(line, "/test_accuracy")) {
        facts.accuracy = right;
        facts.best_accuracy = std::max(facts.best_accuracy.value_or(0), *right);
      }
      for (const train::MetricName& metric : train::known_metrics())
        if (const auto value = at<double>(line, "/test_" + std::string(metric.name))) {
          facts.metric = metric.name;
          facts.metric_value = value;
          facts.has_accuracy = metric.has_accuracy();
        }
    }
    if (is_of(line, "plan")) facts.plan = line;
    if (is_of(line, "convergence")) facts.convergence = line;
    if (is_of(line, "widths")) facts.average_bits = at<double>(line, "/average_bits");
  }
}

}  // namespace

RunFacts facts_of(const ReportRun& run) {
  RunFacts facts;
  facts.title = run_title(run.config);
  read_progress(run, facts);
  read_recorded(run, facts);
  const Json& summary = run.summary;
  const Json& recorded = facts.recorded.empty() ? Json() : facts.recorded.back().memory;
  const auto bytes = [&](const std::string& key) {
    const auto ended = at<int64_t>(summary, "/memory/" + key);
    return ended ? ended : at<int64_t>(recorded, "/" + key);
  };
  facts.activation = bytes("activation_bytes");
  facts.packed = bytes("packed_bytes");
  facts.peak = bytes("peak_bytes");
  facts.rss = at<int64_t>(summary, "/memory/host_peak_rss");
  if (summary.is_object() && summary.contains("memory"))
    facts.at_peak = summary["memory"].value("at_peak", Json());
  else if (recorded.is_object())
    facts.at_peak = recorded.value("at_peak", Json());
  facts.step_ms = at<double>(summary, "/speed/step_ms_median");
  facts.rate = at<double>(summary, "/speed/units_per_second");
  if (facts.rate)
    facts.unit = summary["speed"].value("unit", "samples");
  else
    facts.rate = at<double>(summary, "/speed/samples_per_second");
  facts.ranks = at<int64_t>(summary, "/ranks/ranks");
  facts.communication = at<double>(summary, "/ranks/communication_share");
  facts.waiting = at<double>(summary, "/ranks/waiting_share");
  facts.imbalance = at<double>(summary, "/ranks/imbalance");
  return facts;
}

Points points_of(const ReportRun& run, const std::string& type, const std::string& pointer) {
  Points points;
  for (const Json& line : run.lines)
    if (is_of(line, type))
      if (const auto value = at<double>(line, pointer); value && std::isfinite(*value))
        points.emplace_back(line["step"].get<double>(), *value);
  return points;
}

}  // namespace frugal::apps
