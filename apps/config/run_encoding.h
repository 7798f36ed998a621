// RunEncoding: what a run knows of its data, which decides how they become batches. A run keeps it
// in its folder when it begins. Every later command reads it there, with read_encoding(), and puts
// it into DataConfig::known. Whatever makes batches takes the encoding from there and asks the data
// for nothing that decides one. So data that have changed are encoded as the network learned them.
//
//   data.json   the names that the data give to the classes, which samples of undivided data are
//               validated and tested on, and a digest of the data
//   and columns.json, input.json, classes.json and the tokenizer's files (stored_run.h)
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "data/detection/box_set.h"
#include "data/split.h"
#include "data/tables/csv_table.h"
#include "data/text/chat/text_samples.h"
#include "data/text/tokenizer.h"

namespace frugal::apps {

// Which samples of data without parts of their own are validated and tested on; all others are
// trained on. Samples have names, or else are told apart by their indices.
struct KeptParts {
  std::vector<int64_t> validation, test;
  std::vector<std::string> validation_names, test_names;
  bool by_name() const { return !test_names.empty(); }
};

// Tells data apart by the names and sizes of files and, if there are few, by their contents. Equal
// digests: the data are the same.
struct DataDigest {
  int64_t files = 0, bytes = 0;
  std::string sha256;
  bool operator==(const DataDigest&) const = default;
};

struct RunEncoding {
  std::shared_ptr<const data::CsvEncoder> table = {};  // csv
  std::vector<std::string> class_ids = {};             // as the data name them; empty: not known
  std::vector<std::string> class_names = {};           // as people name them
  int64_t classes = 0;                                 // 0: not known
  std::shared_ptr<const data::BoxClasses> boxes = {};  // what classes of boxes are in their files
  std::vector<int64_t> mask_values = {};               // the value of each class in masks
  std::shared_ptr<const data::Tokenizer> tokenizer = {};
  std::shared_ptr<const data::SampleEncoder> samples =
      {};  // with a folder's tokenizer, which it holds
  // For features of nodes: a column less its mean, then times its scale; empty: they stay.
  std::vector<double> column_means = {}, column_scales = {};
  std::optional<bool> of_bytes = {};      // arrays of pictures: bytes, which become 0 to 1
  std::optional<KeptParts> parts = {};    // none: the data have parts, or not known
  std::optional<DataDigest> digest = {};  // none: made in memory, or not known
};

// The digest of the data; none: they are made in memory. Errors: no such data.
std::optional<DataDigest> digest_of(const Config& config);
// What is different, such as "401 files of 3.2 MiB, and 400 files of 3.1 MiB when the run began";
// empty: the data are those of the run, or it is not known. REQUIRES: data that are there.
std::string data_change(const Config& config, const RunEncoding& known);

Json digest_json(const DataDigest& digest);
// data.json for what a run learns of its data; empty: it learns nothing, as with random data.
// REQUIRES: a resolved configuration.
std::string data_json(const Config& config);
// Reads data.json into `known`. Errors: whatever does not fit; the caller names the file.
void read_data_json(const Json& json, RunEncoding& known);

// The samples of `parts` among `count` samples. name: gives the name of a sample; it may be empty
// if parts have no names. What the parts name and the data do not have is left out.
data::SplitIndices kept_split(const KeptParts& parts, int64_t count,
                              const std::function<std::string(int64_t)>& name);
KeptParts parts_of(const data::SplitIndices& split,
                   const std::function<std::string(int64_t)>& name = {});

}  // namespace frugal::apps
