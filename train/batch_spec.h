// BatchSpec: what batches of some data look like.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace frugal::train {

// What a batch of some data looks like (data/dataset.h).
struct BatchSpec {
  enum class Kind : uint8_t { images, rows, sequences, graph };
  // images [H, W, C]; rows [F]; sequences [T]; a graph, whose nodes are samples, [V, F]
  Shape sample;
  int64_t classes = 0;
  Kind kind = Kind::images;
  // beside accuracy: "f1", "micro_f1", "matthews", "perplexity", "r2", "miou", "map" or none
  std::string metric = {};
  bool mixes = false;  // training batches hold mixed samples, and targets are shares of classes
  bool target_of_each_pixel = false;  // images: targets [N, H, W] i64
  // sequences
  int64_t vocabulary = 0;
  bool target_of_each_token = false;
  std::vector<std::string> token_extras = {};  // [N, T] i64
  // graph
  NamedTensors extras = {};
  // Does a step save the input like any other activation, and release it when the first layer has
  // run? A policy may then pack it. Where the source holds batches, it does not. The answer is one
  // for a run, since it says which tensors a policy packs.
  bool releases_input = false;
  bool has_several_labels() const { return metric == "micro_f1"; }  // targets [V, classes] f32
  bool has_values() const { return metric == "r2"; }                // the same: numbers to predict
  bool has_boxes() const { return metric == "map"; }  // images: objects, see data::BoxBatches
  bool is_sparse() const { return find_tensor(extras, "x_row_ptr").defined(); }
};

// Is the input of a batch of so many samples so large that a step should release it? Images and
// rows of 64 MiB and more.
bool is_large_input(const BatchSpec& spec, int64_t samples);

// What speed counts: "images", "rows", "tokens" (padding is among them) or "nodes".
const char* unit_of(const BatchSpec& spec);
int64_t units_of(const BatchSpec& spec, const Batch& batch);
// A batch of so many samples, not filled: for `meta`.
Batch shape_of_batch(const BatchSpec& spec, int64_t samples, Device device);

}  // namespace frugal::train
