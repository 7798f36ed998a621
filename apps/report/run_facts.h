// Figures of a run that a report shows, from its lines and its summary.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/run_data.h"

namespace frugal::apps {

// A row of a line of type "tensors".
struct TensorRow {
  std::string layer, op, how, shape;
  std::optional<uint64_t> seq;
  double elements = 0;
  int64_t raw = 0;  // raw, stored: bytes
  std::optional<int64_t> stored;
  std::optional<double> bits, error, pack_ms, unpack_ms;
};

// A recorded step.
struct RecordedStep {
  int64_t step = 0;
  Json memory;  // the line of type "memory"
  std::vector<TensorRow> tensors;
  // raw: what would be kept without compression. stored: what is kept. Tensors in memory that holds
  // them anyway do not count.
  double raw_bytes = 0, stored_bytes = 0;
  std::optional<double> packed_bits;  // bits an element, on average over what is packed
};

struct RunFacts {
  std::string title;   // run_title()
  std::string metric;  // in the place of the accuracy: "r2", or beside it; empty: none
  bool has_accuracy = true;
  std::optional<double> accuracy, best_accuracy, metric_value, test_loss, train_loss;
  std::optional<int64_t> activation, packed, peak, rss;
  Json at_peak;
  std::optional<double> step_ms, rate;
  std::string unit = "samples";
  // Where several ranks trained together: how many, and shares of their time (RanksReport).
  std::optional<int64_t> ranks;
  std::optional<double> communication, waiting, imbalance;
  int64_t step = 0, epoch = 0;  // done
  std::vector<RecordedStep> recorded;
  std::optional<Json> plan, convergence;  // the last lines of these types
  std::optional<double> average_bits;     // what the last line of type "widths" says
};
RunFacts facts_of(const ReportRun& run);  // Errors: lines that are not those of a run

// The values at `pointer` of the lines of a type, over their steps.
using Points = std::vector<std::pair<double, double>>;
Points points_of(const ReportRun& run, const std::string& type, const std::string& pointer);

}  // namespace frugal::apps
