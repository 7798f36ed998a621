#include "apps/cli/metrics_csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"

namespace frugal::apps {
namespace {

constexpr const char* kName = "metrics.csv";
constexpr std::string_view kHeading =
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,test_metric,lr,mean_bits,"
    "saved_bytes,peak_bytes,activation_bytes,seconds\n";
// Files of earlier versions lack the column saved_bytes.
constexpr std::string_view kEarlierHeading =
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,test_metric,lr,mean_bits,"
    "peak_bytes,activation_bytes,seconds\n";
constexpr int kColumnsBeforeSaved = 9;

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
  std::string_view text;  // a beginning of the file
  double seconds = 0;
};

// What belongs to the first `step` steps. A file that is none of ours gives nothing. A killed
// process may leave a row without its end.
Kept kept_rows(std::string_view text, int64_t step) {
  if (!text.starts_with(kHeading)) return {};
  Kept kept{text.substr(0, kHeading.size())};
  for (;;) {
    const size_t begin = kept.text.size(), end = text.find('\n', begin);
    if (end == std::string_view::npos) return kept;
    const std::string_view row = text.substr(begin, end - begin);
    const size_t first = row.find(','), last = row.rfind(',');
    if (first == std::string_view::npos || first == last) return kept;
    const auto at = number_in<int64_t>(row.substr(first + 1, row.find(',', first + 1) - first - 1));
    const auto seconds = number_in<double>(row.substr(last + 1));
    if (!at || !seconds || *at > step) return kept;
    kept = {text.substr(0, end + 1), *seconds};
  }
}

// The text of an earlier version's file with the columns of today. The new one is empty.
std::string with_all_columns(std::string_view text) {
  std::string made(kHeading);
  int columns = 0;
  for (const char c : text.substr(kEarlierHeading.size())) {
    made += c;
    if (c == '\n') columns = 0;
    if (c == ',' && ++columns == kColumnsBeforeSaved) made += ',';
  }
  return made;
}

}  // namespace

MetricsCsv::MetricsCsv(std::shared_ptr<RunFolder> folder, const RunState& state)
    : folder_(std::move(folder)) {
  const std::string path = folder_->path() + "/" + kName;
  std::string text;
  if (data::is_file(path)) {
    const std::vector<uint8_t> bytes = data::read_file("metrics", path);
    text.assign(bytes.begin(), bytes.end());
  }
  if (text.starts_with(kEarlierHeading)) {
    text = with_all_columns(text);
    data::atomic_write(path, text);
  }
  const Kept kept = kept_rows(text, state.step);
  if (state.seconds == 0) seconds_before_ = kept.seconds;
  folder_->start_appending(kName, static_cast<int64_t>(kept.text.size()));
  if (kept.text.empty()) folder_->append(kName, kHeading);
}

void MetricsCsv::add(const Row& row) {
  const EpochReport& epoch = row.epoch;
  const auto accuracy = [&](double value) {
    return row.has_accuracy ? std::optional(value) : std::nullopt;
  };
  const std::optional<EpochResult>& result = epoch.result;
  const std::optional<double> none;
  folder_->append(
      kName,
      fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{:.3f}\n", epoch.epoch, epoch.step,
                  cell(epoch.train_loss), cell(accuracy(epoch.train_accuracy)),
                  cell(result ? std::optional(result->test.loss) : none),
                  cell(result ? accuracy(result->test.accuracy) : none),
                  cell(result ? result->test.metric : none), cell(epoch.lr),
                  cell(epoch.mean_bits > 0 ? std::optional(epoch.mean_bits) : none), epoch.saved,
                  row.memory.peak, row.memory.saved(), seconds_before_ + epoch.seconds));
}

}  // namespace frugal::apps
