// DataKind: what is known of a kind of data before any of them are opened. Each kind has its own
// file, with a class derived from this one and a class derived from OpenData.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/data/make_data.h"
#include "apps/config/data/open_data.h"
#include "apps/config/keys/config_table.h"
#include "data/detection/box_batches.h"
#include "data/tables/csv_table.h"

namespace frugal::apps {

// A key of the section "data" that belongs to a kind, and who reads it.
struct DataKey {
  by_name::Option<DataConfig> option;
  Reader reader;
};

class DataKind {
 public:
  virtual ~DataKind() = default;
  virtual std::vector<std::string> names() const = 0;
  // Before resolve().
  virtual DataTraits traits(const Config& config) const = 0;
  virtual std::vector<DataKey> keys() const { return {}; }
  // Errors (ConfigError): keys that these data need to be otherwise.
  virtual void check(const Config& config) const = 0;
  // Files or folders below a folder of data, any of which says that it has this set; none: only
  // data.dir can name it.
  virtual std::vector<std::string> marks(const std::string&) const { return {}; }
  // A data set of which nothing is read yet.
  virtual std::shared_ptr<OpenData> open() const = 0;
};

const std::vector<const DataKind*>& data_kinds();
// The kind of the configured data.
const DataKind& kind_of(const Config& config);

// The first of these folders in `dir` that exists, or `dir`.
std::string within(const std::string& dir, const std::vector<std::string>& folders);

const DataKind& image_data();  // make_images.cpp
const DataKind& row_data();    // make_rows.cpp
const DataKind& text_data();   // make_text.cpp
const DataKind& graph_data();  // make_graph.cpp
const DataKind& box_data();    // make_boxes.cpp

// How data with boxes make batches.
data::BoxBatchOptions box_options(const Config& config, bool train);

// What data.encoding says.
data::TextEncoding encoding_of(const Config& config);

}  // namespace frugal::apps
