// Rows of numbers: tables in CSV files, and arrays whose layout is rows.
#include <algorithm>
#include <optional>
#include <set>

#include "apps/config/data/data_kinds.h"
#include "apps/config/data/data_parts.h"
#include "apps/config/data/tensor_data.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/value_named.h"
#include "core/words/quoted.h"
#include "data/loader.h"
#include "data/subset.h"
#include "data/tables/csv_table.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

// A table with what its training part says of it.
struct CsvData {
  DataParts files;
  std::shared_ptr<const data::CsvTable> table;  // the rows of the training file
  std::shared_ptr<const data::CsvEncoder> encoder;
  data::SplitIndices split;  // the parts that one file is cut into
};

}  // namespace

data::TextEncoding encoding_of(const Config& config) {
  using data::TextEncoding;
  return value_named<TextEncoding>(config.data.encoding,
                                   {{"utf-8", TextEncoding::utf_8},
                                    {"latin-1", TextEncoding::latin_1},
                                    {"windows-1252", TextEncoding::windows_1252},
                                    {"utf-16", TextEncoding::utf_16}});
}

namespace {

data::CsvOptions csv_options(const Config& config) {
  const DataConfig& c = config.data;
  data::CsvOptions options;
  options.target = c.target.value_or("");
  options.drop = c.drop;
  options.one_hot = value_named<bool>(c.categories, {{"one_hot", true}, {"index", false}});
  options.fill_missing = value_named<bool>(c.missing, {{"error", false}, {"fill", true}});
  options.standardize = c.normalize == "auto";
  using Task = data::CsvOptions::Task;
  options.task = value_named<Task>(c.task, {{"auto", Task::automatic},
                                            {"classes", Task::classes},
                                            {"values", Task::values},
                                            {"labels", Task::automatic}});  // check() refuses it
  return options;
}

// Errors: a key that names a column which the table does not have.
void check_columns(const Config& config, const data::CsvTable& table) {
  std::vector<std::string> names;
  for (const data::CsvTable::Column& column : table.columns()) names.push_back(column.name);
  const auto check = [&](const char* key, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError(
          key,
          fmt::format("expected a column of {}, which has {}, got {}", in_quotes(table.path()),
                      printable(fmt::format("{}", fmt::join(names, ", ")), 300), in_quotes(name)));
  };
  if (config.data.target) check("data.target", *config.data.target);
  for (const std::string& name : config.data.drop) check("data.drop", name);
}

CsvData read_csv(const Config& config, const DataParts& files) {
  const data::CsvOptions options = csv_options(config);
  const auto& known = config.data.known;
  CsvData csv;
  csv.files = files;
  if (known != nullptr) csv.encoder = known->table;
  csv.table = csv.encoder == nullptr
                  ? std::make_shared<const data::CsvTable>(files.train, encoding_of(config))
                  : std::make_shared<const data::CsvTable>(files.train, csv.encoder->columns(),
                                                           encoding_of(config));
  if (csv.encoder == nullptr) check_columns(config, *csv.table);
  std::vector<int64_t> rows(static_cast<size_t>(csv.table->rows()));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  if (files.one_file()) {
    // The run's parts do not depend on labels.
    csv.split = split_by(
        config, csv.encoder == nullptr
                    ? at_section("data", [&] { return data::csv_labels(*csv.table, options); })
                    : std::vector<int64_t>(static_cast<size_t>(csv.table->rows())));
    rows = csv.split.train;
  }
  if (csv.encoder == nullptr)
    csv.encoder = at_section("data", [&] {
      return std::make_shared<const data::CsvEncoder>(*csv.table, options, rows);
    });
  return csv;
}

// A table or arrays.
class OpenRows final : public OpenData {
 public:
  BatchSpec spec(const Config& config) override;
  std::unique_ptr<data::BatchSource> batches(const Config& config, Split split) override;
  std::vector<int64_t> samples_ahead(const Config& config, int64_t batch) override;
  std::vector<std::string> class_names(const Config& config) override;
  const data::CsvEncoding* columns(const Config& config) override;
  void describe(const Config& config, RunEncoding& known) override;

 private:
  const CsvData& csv_data(const Config& config) {
    if (!csv_) csv_ = read_csv(config, find_parts(config, {".csv", ".csv.gz"}));
    return *csv_;
  }
  DatasetPtr open_csv(const Config& config, Split split);
  // The rows of the training file, which its parts share.
  const DatasetPtr& encoded_table(const CsvData& csv) {
    if (encoded_ == nullptr)
      encoded_ = std::make_shared<data::TensorDataset>(csv.encoder->encode(*csv.table));
    return encoded_;
  }
  // Warns of unknown categories of a part, once. `rows`, null: all.
  void warn_once(const data::CsvTable& table, Split split, const std::vector<int64_t>* rows);

  std::optional<CsvData> csv_;
  DatasetPtr encoded_;
  std::set<Split> warned_;  // the parts
  TensorFiles arrays_;
};

void OpenRows::warn_once(const data::CsvTable& table, Split split,
                         const std::vector<int64_t>* rows) {
  constexpr const char* kNames[] = {"training", "validation", "test"};
  if (warned_.insert(split).second)
    csv_->encoder->warn_of_unknown(table, kNames[static_cast<size_t>(split)], rows);
}

DatasetPtr OpenRows::open_csv(const Config& config, Split split) {
  const CsvData& csv = csv_data(config);
  if (csv.files.one_file()) {
    const std::vector<int64_t>& own = part_of(csv.split, split);
    if (own.empty()) return nullptr;
    warn_once(*csv.table, split, &own);
    return std::make_shared<data::Selection>(encoded_table(csv), own);
  }
  const std::string& path = csv.files.of(split);
  if (path.empty()) return nullptr;
  if (path == csv.files.train) {
    warn_once(*csv.table, split, nullptr);
    return encoded_table(csv);
  }
  const data::CsvTable table(path, csv.table->kinds(), encoding_of(config));
  warn_once(table, split, nullptr);
  return std::make_shared<data::TensorDataset>(csv.encoder->encode(table));
}

bool is_csv(const Config& config) { return config.data.name == "csv"; }

BatchSpec OpenRows::spec(const Config& config) {
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::rows;
  if (!is_csv(config)) {
    const TensorParts& parts = arrays_.parts(config);
    spec.sample = parts.sample;
    spec.classes = parts.train_targets.classes;
    spec.target = target_of(parts.train_targets);
    spec.metric = usual_metric(spec.target);
    return spec;
  }
  const data::CsvEncoder& encoder = *csv_data(config).encoder;
  spec.sample = {encoder.encoding().width()};
  const bool values = encoder.encoding().classes.empty();
  spec.classes = values ? 1 : static_cast<int64_t>(encoder.encoding().classes.size());
  if (values) spec.target = BatchSpec::Target::values;
  spec.metric = usual_metric(spec.target);
  return spec;
}

void check_rows(const Config& config) {
  const DataConfig& c = config.data;
  if (!is_csv(config)) return;
  if (c.normalize != "auto" && c.normalize != "none")
    throw ConfigError("data.normalize",
                      fmt::format("expected auto (columns of numbers less their mean, by their "
                                  "deviation) or none for csv, got {}",
                                  c.normalize));
  if (c.task == "labels")
    throw ConfigError("data.task",
                      "expected auto, classes or values for csv, which has one column "
                      "to predict; got labels");
}

std::unique_ptr<data::BatchSource> OpenRows::batches(const Config& config, Split split) {
  const bool train = split == Split::train;
  DatasetPtr rows = is_csv(config) ? open_csv(config, split) : arrays_.open(config, split);
  if (rows == nullptr) return nullptr;
  const int64_t limit = train ? config.data.train_samples : config.data.test_samples;
  if (limit > 0) rows = data::first(rows, limit);
  data::LoaderOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch();
  options.shuffle = train;
  options.drop_last = train && config.data.drop_last;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.threads = static_cast<int>(config.data.workers);
  return std::make_unique<data::Loader>(rows, options);
}

std::vector<int64_t> OpenRows::samples_ahead(const Config& config, int64_t batch) {
  if (config.data.workers == 0) return {};
  return std::vector<int64_t>(static_cast<size_t>(data::LoaderOptions().prefetch), batch);
}

std::vector<std::string> OpenRows::class_names(const Config& config) {
  return is_csv(config) ? csv_data(config).encoder->encoding().classes
                        : arrays_.class_names(config);
}

const data::CsvEncoding* OpenRows::columns(const Config& config) {
  return is_csv(config) ? &csv_data(config).encoder->encoding() : nullptr;
}

void OpenRows::describe(const Config& config, RunEncoding& known) {
  if (!is_csv(config)) return arrays_.describe(config, known);
  const CsvData& csv = csv_data(config);
  if (csv.files.one_file()) known.parts = parts_of(csv.split);
}

class RowKind final : public DataKind {
 public:
  std::vector<std::string> names() const override { return {"csv"}; }
  std::vector<DataKey> keys() const override;
  DataTraits traits(const Config& config) const override {
    DataTraits traits;
    traits.kind = BatchSpec::Kind::rows;
    traits.splits = true;
    traits.normalizes = config.data.name == "csv";
    return traits;
  }
  void check(const Config& config) const override { check_rows(config); }
  std::shared_ptr<OpenData> open() const override { return std::make_shared<OpenRows>(); }
};

std::vector<DataKey> RowKind::keys() const {
  namespace range = by_name::range;
  return {
      {{{"layout", range::choice("nhwc, nchw, rows, tokens"),
         "tensors: the axes of the inputs: pictures, rows of numbers, or token ids."},
        &DataConfig::layout},
       data_named({"tensors"})},
      {{{"target", range::or_nothing(range::any_text()),
         "csv, jsonl: the column or field to predict; null: target or label. image_list: the "
         "column with the labels; null: all columns but that of the paths."},
        &DataConfig::target},
       {"csv, image_list, and jsonl with encoders",
        {"data.name", "model.name"},
        [](const Config& c) {
          return c.data.name == "csv" || c.data.name == "image_list" ||
                 (c.data.name == "jsonl" && !data_traits(c).is_text);
        }}},
      {{{"task", range::choice("auto, classes, values, labels"),
         "csv, tensors: whether targets are classes, numbers to predict (mean squared error), "
         "or in tensors several labels (0 and 1); auto: by their type."},
        &DataConfig::task},
       {"csv and tensors but tokens",
        {"data.name", "data.layout"},
        [](const Config& c) {
          return c.data.name == "csv" || (c.data.name == "tensors" && c.data.layout != "tokens");
        }}},

      {{{"drop", range::list(range::any_text(), 0, 4096), "csv: columns to leave out."},
        &DataConfig::drop},
       data_named({"csv"})},
      {{{"encoding", range::choice("utf-8, latin-1, windows-1252, utf-16"),
         "csv: how the text of the files is written."},
        &DataConfig::encoding},
       data_named({"csv"})},
      {{{"categories", range::choice("one_hot, index"),
         "csv: a column of categories becomes an input for each, or one with their number."},
        &DataConfig::categories},
       data_named({"csv"})},
      {{{"missing", range::choice("error, fill"),
         "csv: an empty cell stops the run, or counts as the column's mean, or as no category."},
        &DataConfig::missing},
       data_named({"csv"})}};
}

}  // namespace

const DataKind& row_data() {
  static const RowKind kind;
  return kind;
}

}  // namespace frugal::apps
