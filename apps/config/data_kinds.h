// The kinds of data that batches come from: one file each, all of the same functions.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/make_data.h"
#include "apps/config/run_encoding.h"
#include "data/detection/box_batches.h"
#include "data/tables/csv_table.h"

namespace frugal::apps {

struct DataKind {
  std::vector<std::string> (*names)();
  DataTraits (*traits)(const Config& config);  // before resolve()
  // Errors (ConfigError): keys that these data need to be otherwise.
  void (*check)(const Config& config);
  // Files or folders below a folder of data, any of which says that it has this set; none: only
  // data.dir can name it.
  std::vector<std::string> (*marks)(const std::string& name);
  BatchSpec (*spec)(const Config& config);
  std::unique_ptr<data::BatchSource> (*open)(const Config& config, Split split);
  // See samples_ahead().
  std::vector<int64_t> (*ahead)(const Config& config, int64_t batch);
  // The names of the classes, in the order of the outputs; empty: not known.
  std::vector<std::string> (*class_names)(const Config& config);
  // Adds to `known` what a run keeps of data like these: the names that the data give to classes,
  // and which samples are tested on, where the run decides that. REQUIRES: resolved.
  void (*describe)(const Config& config, RunEncoding& known);
};

// The first of these folders in `dir` that exists, or `dir`.
std::string within(const std::string& dir, const std::vector<std::string>& folders);

const DataKind& image_data();  // make_images.cpp
const DataKind& row_data();    // make_rows.cpp
const DataKind& text_data();   // make_text.cpp
const DataKind& graph_data();  // make_graph.cpp
const DataKind& box_data();    // make_boxes.cpp

// How data with boxes make batches.
data::BoxBatchOptions box_options(const Config& config, bool train);
// The number of each class in the lists of such data; empty: classes have no numbers of their own.
std::vector<int64_t> category_ids(const Config& config);

// What data.encoding says.
data::TextEncoding encoding_of(const Config& config);
// What the training rows say of the columns. REQUIRES: data.name csv.
data::CsvEncoding csv_encoding(const Config& config);

}  // namespace frugal::apps
