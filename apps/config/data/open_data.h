// OpenData: a data set that is open. It owns what was read of its files: tables, texts and their
// vocabularies, lists of pictures, graphs. It reads a file when something is first asked of it that
// needs the file. What it has read stays as it is, even if the file changes or goes. It does not
// keep pictures, inputs of arrays and GLUE's sentences: whoever makes batches reads these.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/data/make_data.h"
#include "apps/config/run_encoding.h"
#include "data/tables/csv_table.h"

namespace frugal::apps {

// A class for each kind of data derives from it (data_kinds.h). The functions of make_data.h call
// these functions and say what they return. `config` is a configuration of these data:
// open_data(config) is this object. Errors: those of the files; ConfigError for keys that do not
// fit the data.
class OpenData {
 public:
  OpenData() = default;
  OpenData(const OpenData&) = delete;
  OpenData& operator=(const OpenData&) = delete;
  virtual ~OpenData() = default;

  // Everything but releases_input and whole_batch.
  virtual BatchSpec spec(const Config& config) = 0;
  virtual std::unique_ptr<data::BatchSource> batches(const Config& config, Split split) = 0;
  virtual std::unique_ptr<data::BatchSource> training_samples(const Config& config);
  virtual std::vector<int64_t> samples_ahead(const Config& config, int64_t batch);
  // The columns of the rows of the split, ascending, where a batch has as many as its longest row;
  // empty: batches have those of the spec, or the split has none.
  virtual const std::vector<int64_t>& row_lengths(const Config& config, Split split);
  // The names of the classes, in the order of the outputs; empty: not known.
  virtual std::vector<std::string> class_names(const Config& config);
  virtual std::vector<int64_t> category_ids(const Config& config);
  virtual std::vector<int64_t> mask_values(const Config& config);
  virtual data::PictureList labelled_pictures(const Config& config, Split split);
  virtual std::shared_ptr<const data::Tokenizer> tokenizer(const Config& config);
  // What the training rows say of the columns; null: the data are no table.
  virtual const data::CsvEncoding* columns(const Config& config);
  virtual void describe(const Config& config, RunEncoding& known);
};

// The data set that a configuration has open. Copies of the configuration share it, so a run, its
// plan and each of its splits read the data once. What was read is freed with the last copy.
class OpenedData {
 public:
  // The data set of `config`. If another one is open, it is closed.
  std::shared_ptr<OpenData> of(const Config& config);

 private:
  // What decides which data are read, and how.
  struct Source {
    DataConfig data;  // without the keys of batches
    int64_t seed = 0;
    bool for_decoder = false;
    bool operator==(const Source&) const = default;
  };
  static Source source_of(const Config& config);

  std::optional<Source> source_;
  std::shared_ptr<OpenData> data_;
};

// The data set of the configuration. It is opened once for all copies.
std::shared_ptr<OpenData> open_data(const Config& config);

}  // namespace frugal::apps
