// data.name tensors: arrays "input" and "target" from npz or safetensors files.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/data/data_parts.h"
#include "apps/config/run_encoding.h"
#include "data/tables/tensor_file.h"

namespace frugal::apps {

// Where the arrays of a split are: a file and what stands before their names. No file: there is no
// such split, or the training arrays are split.
struct TensorPlace {
  std::string file, before;
};
// With one file, its own arrays may be parts: val_input, test_input.
struct TensorPlaces {
  TensorPlace train, validation, test;
  bool split = false;  // the training arrays are split
};

// What the files say. Targets are read, inputs are not.
struct TensorParts {
  TensorPlaces places;
  Shape sample;                       // [H, W, C], [F] or [T]
  data::SampleTargets train_targets;  // none: tokens without targets
  bool has_targets = true;
  bool of_bytes = false;  // pictures: bytes, which become 0 to 1
};

// Whole token ids of a split, [N, T] i64, and their labels; undefined: there is no such split.
struct TokenArray {
  Tensor ids;
  std::vector<int64_t> labels;  // empty without targets
  bool one_part = false;        // there are no others: a decoder's is cut by data.validation
};

// Gives the pictures of an array, u8 or f32, to a network that was trained on bytes, which become 0
// to 1, or on numbers, which stay as they are. Errors, which begin with `expected`: bytes, where it
// was trained on numbers; numbers outside of [0, 1], where it was trained on bytes.
Tensor pictures_like(bool of_bytes, const Tensor& input, const std::string& expected);

// The arrays of an open data set (open_data.h).
class TensorFiles {
 public:
  // What the files of data.dir say, with their axes as data.layout says. It is read once.
  // Errors: ConfigError for a folder without files; those of the files; an input whose axes do not
  // fit data.layout.
  const TensorParts& parts(const Config& config);
  // Whole inputs and targets of a split; null: there is no such split.
  DatasetPtr open(const Config& config, Split split);
  TokenArray open_tokens(const Config& config, Split split);
  // Adds the parts of one file that is split.
  void describe(const Config& config, RunEncoding& known);
  // The names of data.class_names; empty without this key. Errors: fewer names than classes.
  std::vector<std::string> class_names(const Config& config);

 private:
  DatasetPtr read_whole(const Config& config, Split split);

  std::optional<TensorParts> parts_;
  DatasetPtr split_;  // the training arrays, which the parts share where they are split
};

// Labels, values, or a class of each sample.
BatchSpec::Target target_of(const data::SampleTargets& targets);

}  // namespace frugal::apps
