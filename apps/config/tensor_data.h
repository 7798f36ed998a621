// data.name tensors: arrays "input" and "target" from npz or safetensors files.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/data_parts.h"
#include "apps/config/run_encoding.h"
#include "data/tables/tensor_file.h"

namespace frugal::apps {

// What the files say. Targets are read, inputs are not.
struct TensorParts {
  DataParts files;  // with one file, its own arrays may be parts: val_input, test_input
  Shape sample;     // [H, W, C], [F] or [T]
  data::SampleTargets train_targets;  // none: tokens without targets
  bool has_targets = true;
};
// What the files of data.dir say, with their axes as data.layout says. Equal files are read once.
// Errors: ConfigError for a folder without files; those of the files; an input whose axes do not
// fit data.layout.
const TensorParts& tensor_parts(const Config& config);

// Whole inputs and targets of a split; null: there is no such split.
DatasetPtr open_tensors(const Config& config, Split split);
// Whole token ids of a split, [N, T] i64, and their labels; undefined: there is no such split.
struct TokenArray {
  Tensor ids;
  std::vector<int64_t> labels;  // empty without targets
  bool one_part = false;        // there are no others: a decoder's is cut by data.validation
};
TokenArray open_token_array(const Config& config, Split split);

// Adds the parts of one file that is split.
void describe_tensors(const Config& config, RunEncoding& known);

// Labels, values, or a class of each sample.
BatchSpec::Target target_of(const data::SampleTargets& targets);
// The names of data.class_names; empty without this key. Errors: fewer names than classes.
std::vector<std::string> tensor_classes(const Config& config);

}  // namespace frugal::apps
