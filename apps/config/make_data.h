// From a configuration to its batches: the only table of datasets' names.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "data/batch_source.h"

namespace frugal::apps {

std::vector<std::string> dataset_names();

// What a batch of the configured data looks like (data/dataset.h).
struct BatchSpec {
  enum class Kind : uint8_t { images, sequences, graph };
  Shape sample;  // images [H, W, C]; sequences [T]; a graph, whose nodes are samples, [V, F]
  int64_t classes = 0;
  Kind kind = Kind::images;
  std::string metric = {};  // beside accuracy: "f1", "micro_f1", "matthews", "perplexity" or none
  // sequences
  int64_t vocabulary = 0;
  bool target_of_each_token = false;
  std::vector<std::string> token_extras = {};  // [N, T] i64
  // graph
  NamedTensors extras = {};
  bool has_several_labels() const { return metric == "micro_f1"; }  // targets [V, classes] f32
  bool is_sparse() const { return find_tensor(extras, "x_row_ptr").defined(); }
};
// What is known of a data set by its name: which keys it reads follows from that.
struct DataTraits {
  BatchSpec::Kind kind = BatchSpec::Kind::images;
  bool reads_files = true;
  bool normalizes = false;        // has means and deviations, or rows of features to scale
  bool sparse_features = false;   // can keep features as a sparse matrix
  bool is_text = false;           // one text, cut into windows
  bool of_picture_files = false;  // one file for each picture
};
DataTraits data_traits(const std::string& name);

// The first folder of data_folders() that has the set; empty: none has.
std::string find_data(const std::string& name);
// "a, b or c", of data_folders().
std::string searched_folders();

// Reads no image; vocabularies and graphs are read once.
BatchSpec batch_spec(const Config& config);
// What speed counts: "images", "tokens" (padding is among them) or "nodes".
const char* unit_of(const BatchSpec& spec);
int64_t units_of(const BatchSpec& spec, const Batch& batch);
// A batch of so many samples, not filled: for `meta`.
Batch shape_of_batch(const BatchSpec& spec, int64_t samples, Device device);
// Samples `begin` to before `end`: views. A graph stays whole.
Batch part_of(const Batch& batch, int64_t begin, int64_t end);
bool is_divisible(const Batch& batch);

// Finds the folder of the data, and checks what is asked of them. Errors: ConfigError.
void resolve_data(Config& config);

enum class Split : uint8_t { train, validation, test };
// Null: there is no such split. REQUIRES: resolved. Errors: those of the data files; more classes
// than the model's outputs.
std::unique_ptr<data::BatchSource> make_batches(const Config& config, Split split);
// How many batches a source holds ahead of the one in use, and of how many samples.
std::vector<int64_t> samples_ahead(const Config& config, int64_t batch);

}  // namespace frugal::apps
