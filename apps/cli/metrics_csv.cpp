#include "apps/cli/metrics_csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "data/formats/file_bytes.h"

namespace frugal::apps {
namespace {

constexpr const char* kName = "metrics.csv";
constexpr std::string_view kHeading =
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,test_metric,lr,mean_bits,"
    "peak_bytes,activation_bytes,seconds\n";

template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string cell(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? fmt::format("{}", *value) : std::string();
}

struct Kept {
  std::string text{kHeading};
  double seconds = 0;
};

// What belongs to the first `step` steps. A file that is none of ours gives no rows.
Kept kept_rows(std::string_view text, int64_t step) {
  Kept kept;
  if (!text.starts_with(kHeading)) return kept;
  for (text.remove_prefix(kHeading.size()); !text.empty();) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    const size_t first = row.find(','), last = row.rfind(',');
    if (first == std::string_view::npos || first == last) break;
    const auto at = number_in<int64_t>(row.substr(first + 1, row.find(',', first + 1) - first - 1));
    const auto seconds = number_in<double>(row.substr(last + 1));
    if (!at || !seconds || *at > step) break;
    kept.text.append(row).append("\n");
    kept.seconds = *seconds;
  }
  return kept;
}

}  // namespace

MetricsCsv::MetricsCsv(std::shared_ptr<RunFolder> folder, int64_t step)
    : folder_(std::move(folder)), text_(kHeading) {
  const std::string path = folder_->path() + "/" + kName;
  if (!data::is_file(path)) return;
  const std::vector<uint8_t> bytes = data::read_file("metrics", path);
  const std::string before(bytes.begin(), bytes.end());
  Kept kept = kept_rows(before, step);
  text_ = std::move(kept.text);
  seconds_before_ = kept.seconds;
  if (text_ != before) folder_->write(kName, text_);
}

void MetricsCsv::add(const Row& row) {
  const EpochReport& epoch = row.epoch;
  const auto accuracy = [&](double value) {
    return row.has_accuracy ? std::optional(value) : std::nullopt;
  };
  const std::optional<EpochResult>& result = epoch.result;
  const std::optional<double> none;
  const double bits = row.last != nullptr ? row.last->mean_bits : 0;
  text_ += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{:.3f}\n", epoch.epoch, epoch.step,
                       cell(epoch.train_loss), cell(accuracy(epoch.train_accuracy)),
                       cell(result ? std::optional(result->test.loss) : none),
                       cell(result ? accuracy(result->test.accuracy) : none),
                       cell(result ? result->test.metric : none),
                       cell(row.last != nullptr ? std::optional(row.last->lr) : none),
                       cell(bits > 0 ? std::optional(bits) : none), row.memory.peak,
                       row.memory.saved(), seconds_before_ + row.seconds);
  folder_->write(kName, text_);
}

}  // namespace frugal::apps
