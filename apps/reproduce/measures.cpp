#include "apps/reproduce/measures.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "apps/reproduce/cells.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

using MetricUnit = Metric::Unit;

struct CellRow {
  std::vector<std::string> metrics, measures;
  bool seeds = false, alone = false, parts = false;
};

// In the order of CellKind.
const std::vector<CellRow>& kinds() {
  static const std::vector<CellRow> all = {
      {{"activation", "less", "packed", "peak", "peak_less"}, {}},
      {{"accuracy", "best_accuracy", "loss", "best_loss", "bits", "epoch_activation", "activation",
        "peak", "cost"},
       {},
       true},
      {{"time", "activation", "less", "peak", "peak_less"}, {"repeats"}, false, true},
      {{"variance", "activation"},
       {"train_steps", "batches", "draws", "layers"},
       true,
       false,
       true},
      {{"largest"}, {"max", "memory"}}};
  return all;
}
const CellRow& row_of(CellKind kind) { return kinds().at(static_cast<size_t>(kind)); }

const std::vector<Metric>& all_metrics() {
  static const std::vector<Metric> all = {
      {"activation", "activations", MetricUnit::bytes},
      {"epoch_activation", "activations at epochs' ends", MetricUnit::bytes, true},
      {"less", "activations less", MetricUnit::times},
      {"peak_less", "peak less", MetricUnit::times},
      {"bits", "bits of an element", MetricUnit::bits, true},
      {"packed", "packed", MetricUnit::bytes},
      {"peak", "peak", MetricUnit::bytes},
      {"accuracy", "test metric", MetricUnit::percent, true},
      {"best_accuracy", "best test metric", MetricUnit::percent, true},
      {"loss", "test loss", MetricUnit::loss, true},
      {"best_loss", "best test loss", MetricUnit::loss, true},
      {"cost", "training over one run's", MetricUnit::times, true},
      {"time", "step over whole activations'", MetricUnit::ratio},
      {"largest", "largest", MetricUnit::count},
      {"variance", "variance over the minibatches'", MetricUnit::ratio, true}};
  return all;
}

std::string option(std::string key) {
  for (char& c : key)
    if (c == '_') c = '-';
  return "--" + key;
}

bool of_variant(const std::string& set) {
  return set.starts_with("compression.") || set.starts_with("train.checkpointing=") ||
         set.starts_with("cuda_graphs=");
}

// In a --variant, spaces separate keys, except within double quotes.
std::string in_variant(const std::string& set) {
  const size_t equals = set.find('=');
  const std::string value = set.substr(equals + 1);
  const bool quotes = value.find(' ') != std::string::npos && value.front() != '"';
  return set.substr(0, equals + 1) + (quotes ? Json(value).dump() : value);
}

// The last value, or that of the best epoch, of what the task counts: F1, Matthews' coefficient, or
// the accuracy.
double test_metric(const Json& result) {
  for (const char* name : {"test_matthews", "test_f1", "test_micro_f1"})
    if (result.contains(name)) return 100 * result.at(name).get<double>();
  return 100 * result.at("test_accuracy").get<double>();
}

// The mean of a column of metrics.csv over the epochs; none: the run has no such file or column.
std::optional<double> mean_over_epochs(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line, field;
  if (!std::getline(file, line)) return std::nullopt;
  size_t place = 0, column = SIZE_MAX;
  for (std::istringstream heads(line); std::getline(heads, field, ','); ++place)
    if (field == name) column = place;
  double sum = 0, count = 0;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    for (size_t i = 0; std::getline(fields, field, ','); ++i) {
      double value = 0;
      const char* end = field.data() + field.size();
      if (i != column || std::from_chars(field.data(), end, value).ptr != end || field.empty())
        continue;
      sum += value;
      ++count;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace

std::vector<std::string> metric_names(CellKind kind) { return row_of(kind).metrics; }
std::vector<std::string> measures_of(CellKind kind) { return row_of(kind).measures; }
bool has_seeds(CellKind kind) { return row_of(kind).seeds; }
bool runs_alone(CellKind kind) { return row_of(kind).alone; }
bool has_parts(CellKind kind) { return row_of(kind).parts; }

std::string wrong_measure(const std::string& name, const Json& value) {
  if (name == "max") {
    for (const char* known : {"batch", "layers", "width", "resolution"})
      if (value == known) return "";
    return "batch, layers, width or resolution";
  }
  if (name == "memory") return value.is_string() ? "" : "bytes such as \"16 GiB\"";
  return value.is_number_integer() && value.get<int64_t>() > 0 ? ""
                                                               : "a whole number of at least 1";
}

const Metric& metric_named(const std::string& name) {
  for (const Metric& metric : all_metrics())
    if (metric.name == name) return metric;
  throw Error(fmt::format("[metric_named] no such metric: {}", name));
}

std::vector<std::string> units_of(const Metric& metric) {
  switch (metric.unit) {
    case MetricUnit::bytes:
      return {"", "bytes", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"};
    case MetricUnit::percent:
      return {"", "%"};
    case MetricUnit::bits:
      return {"", "bits"};
    case MetricUnit::times:
      return {"", "x"};
    case MetricUnit::count:
    case MetricUnit::ratio:
    case MetricUnit::loss:
      break;
  }
  return {""};
}

double size_of_unit(const std::string& unit) {
  double size = 1;
  for (const char* name : {"kB", "MB", "GB", "TB"})
    if (size *= 1e3; unit == name) return size;
  size = 1;
  for (const char* name : {"KiB", "MiB", "GiB", "TiB"})
    if (size *= 1024; unit == name) return size;
  return 1;
}

std::string in_unit(const Metric& metric, double value) {
  switch (metric.unit) {
    case MetricUnit::bytes:
      return train::decimal_bytes(value);
    case MetricUnit::percent:
      return fmt::format("{:.2f} %", value);
    case MetricUnit::bits:
      return fmt::format("{:.2f} bits", value);
    case MetricUnit::times:
      return fmt::format("{:.1f}x", value);
    case MetricUnit::count:
      return fmt::format("{:.0f}", value);
    case MetricUnit::loss:
      return fmt::format("{:.3f}", value);
    case MetricUnit::ratio:
      break;
  }
  return std::abs(value) < 0.1 ? fmt::format("{:.2g}", value) : fmt::format("{:.2f}", value);
}

std::vector<std::string> arguments_of(const Cell& cell, const std::string& base, int64_t seed,
                                      const std::string& run) {
  std::vector<std::string> words;
  const auto add_sets = [&](bool variant) {
    for (const std::string& set : cell.sets)
      if (!variant || !of_variant(set)) words.insert(words.end(), {"--set", set});
  };
  const auto add_seed = [&] {
    if (has_seeds(cell.kind)) words.insert(words.end(), {"--set", fmt::format("seed={}", seed)});
  };
  switch (cell.kind) {
    case CellKind::memory:
    case CellKind::throughput: {
      // The command has a row of whole activations, too. So what is kept, and how, is the other
      // row's alone.
      words = {"bench", "step", base};
      add_sets(true);
      std::string variant = "cell:";
      for (const std::string& set : cell.sets)
        if (of_variant(set)) variant += " " + in_variant(set);
      words.insert(words.end(), {"--variant", variant});
      break;
    }
    case CellKind::accuracy:
      words = {"train", base, "--out", run, "--resume"};
      add_sets(false);
      add_seed();
      break;
    case CellKind::variance:
      words = {"bench", "variance", base};
      add_sets(false);
      add_seed();
      break;
    case CellKind::largest:
      words = {"plan", base, "--only"};
      add_sets(false);
      break;
  }
  for (const auto& [key, value] : cell.measure.items())
    words.insert(words.end(),
                 {option(key), value.is_string() ? value.get<std::string>() : value.dump()});
  words.emplace_back("--json");
  return words;
}

Json values_of(CellKind kind, const Json& printed, const std::string& run) {
  const auto memory = [](const Json& from) {
    return Json{{"activation", from.at("activation_bytes")},
                {"packed", from.at("packed_bytes")},
                {"peak", from.at("peak_bytes")},
                {"at_peak", from.at("at_peak")}};
  };
  switch (kind) {
    case CellKind::memory:
    case CellKind::throughput: {
      const Json& row = printed.at("variants").at(1);
      if (row.at("out_of_memory") == true) throw Error(row.at("why").get<std::string>());
      Json values = memory(row.at("memory"));
      values["less"] = row.at("L0_activations_over_these");
      values["peak_less"] = row.at("L0_peak_over_this");
      if (kind == CellKind::throughput) values["time"] = row.at("time_over_L0");
      // Where widths come from that a step without values counts with.
      if (row.contains("widths") && row["widths"].is_string() && row["widths"] != "")
        values["note"] = row["widths"];
      return values;
    }
    case CellKind::accuracy: {
      Json values = memory(printed.at("memory"));
      values["accuracy"] = test_metric(printed.at("final"));
      values["best_accuracy"] = test_metric(printed.at("best"));
      values["loss"] = printed.at("final").at("test_loss");
      values["best_loss"] = printed.at("best").at("test_loss");
      values["epochs"] = printed.at("epochs");
      // Both are of the same steps: widths change while a run trains.
      const std::string epochs = run + "/metrics.csv";
      if (const auto bits = mean_over_epochs(epochs, "mean_bits")) values["bits"] = *bits;
      if (const auto bytes = mean_over_epochs(epochs, "saved_bytes"))
        values["epoch_activation"] = *bytes;
      return values;
    }
    case CellKind::variance: {
      Json values = {{"variance", printed.at("variance").at("value")},
                     {"squared_bias", printed.at("squared_bias").at("value")},
                     {"activation", printed.at("activation_bytes")}};
      if (printed.contains("layers"))
        for (const Json& layer : printed.at("layers"))
          values["variance:" + layer.at("layer").get<std::string>()] = layer.at("from").at("value");
      return values;
    }
    case CellKind::largest: {
      const Json& level = printed.at("levels").at(0);
      if (level.contains("why")) throw Error(level.at("why").get<std::string>());
      return {{"largest", level.at("largest")}, {"peak", level.at("peak_bytes")}};
    }
  }
  return {};
}

}  // namespace frugal::apps
