// From a configuration to its batches. Each kind of data (data_kinds.h) lists the names of its data
// sets in its own file. A configuration and its copies share what is read of the files
// (open_data.h).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "data/batch_source.h"
#include "data/image/image_folder.h"
#include "data/part.h"
#include "data/text/tokenizer.h"
#include "train/batch_spec.h"
#include "train/run/model.h"

namespace frugal::apps {

std::vector<std::string> dataset_names();

// Images with a class for each pixel.
constexpr const char *kRandomMasks = "random_masks", *kImageMasks = "image_masks";
// Images with boxes.
constexpr const char *kRandomBoxes = "random_boxes", *kImageBoxes = "image_boxes";

// Samples for language models, in JSON lines (data/text/chat/text_samples.h).
constexpr const char* kConversations = "conversations";

// What is known of a data set before its files are read. Which keys it reads follows from that.
struct DataTraits {
  BatchSpec::Kind kind = BatchSpec::Kind::images;
  std::optional<BatchSpec::Target> target;  // where the name alone says it
  bool reads_files = true;
  bool normalizes = false;        // has means and deviations, or rows of features to scale
  bool sparse_features = false;   // can keep features as a sparse matrix
  bool is_text = false;           // one text, cut into windows
  bool of_picture_files = false;  // one file for each picture
  bool splits = false;            // has no parts of its own, or may have none
};
DataTraits data_traits(const Config& config);

// Whether the data's picture files are turned (data.exif).
data::Exif exif_of(const Config& config);

// The first folder of data_folders() that has the set; empty: none has.
std::string find_data(const std::string& name);
// The folders of data_folders() as "a, b or c".
std::string searched_folders();

// What batches of the data look like. It reads no image. Errors: a train.metric that does not
// measure the targets of the data.
BatchSpec batch_spec(const Config& config);
// Finds the folder of the data, and checks what is asked of them. Errors: ConfigError.
void resolve_data(Config& config);
// Finds the folder alone. Errors: ConfigError where the data are nowhere.
void find_data_dir(Config& config);
// The files or folders below a folder of data that say that it has this set; none: data.dir alone
// can name it.
std::vector<std::string> marks_of(const Config& config);
// What an encoder reads beside the tokens (BatchSpec::token_extras).
std::vector<std::string> encoder_extras(const Config& config);
// Adds to `known` what a run keeps of these data: the names that the data give to classes, and
// which samples are tested on, where the run decides that. REQUIRES: resolved.
void describe_data(const Config& config, RunEncoding& known);

using Split = data::Part;
// Null: there is no such split. REQUIRES: resolved. Errors: those of the data files; more classes
// than the model's outputs.
std::unique_ptr<data::BatchSource> make_batches(const Config& config, Split split);
// Makes batches of this size in place of data.test_batch_size.
std::unique_ptr<data::BatchSource> make_batches(const Config& config, Split split,
                                                int64_t test_batch);
// The training samples as evaluations see them, in batches of data.test_batch_size.
// REQUIRES: resolved; images.
std::unique_ptr<data::BatchSource> training_samples(const Config& config);
// Files that describe the data to whoever uses the trained model, by name, for the run's folder:
//   classes.json  the names of the classes, a JSON list in the order of the outputs
//   columns.json  of csv: how a row becomes an input
//   data.json     what else a run keeps of its data (run_encoding.h)
// Only those that are `wanted`, if it is given. REQUIRES: resolved.
std::map<std::string, std::string> describing_files(
    const Config& config, const std::function<bool(const std::string& name)>& wanted = {});
// How the network's evaluations see pictures and texts. Reads no data. For data that are not
// pictures, or no texts of classes, the result is empty.
train::PictureInput evaluated_pictures(const Config& config, const BatchSpec& spec);
train::TextInput evaluated_texts(const Config& config);
// Are these pictures whose values are bytes, so that they become 0 to 1? False also for arrays of a
// run that has not noted it. Reads no data.
bool has_bytes_of_pictures(const Config& config);
// The picture files of a split with their labels; empty: the data are no picture files, or there is
// no such split.
data::PictureList labelled_pictures(const Config& config, Split split);

// How many batches a source holds ahead of the one in use, and of how many samples.
std::vector<int64_t> samples_ahead(const Config& config, int64_t batch);
// The columns of the largest batch of the split in which each rank has so many samples, where a
// batch has as many as its longest row; 0: batches have those of batch_spec(), or the split has
// none. It reads the files. Errors: those of the files.
int64_t columns_of_largest(const Config& config, Split split, int64_t batch);

// The number of each class in lists of boxes; empty: classes have no numbers of their own.
std::vector<int64_t> category_ids(const Config& config);
// The value of each class in masks. Empty: classes are values, or the data have no masks.
std::vector<int64_t> values_of_masks(const Config& config);
// The tokenizer of the configured text; null where the data are no text.
// Errors: ConfigError where there is no vocabulary; those of the files.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config);

}  // namespace frugal::apps
