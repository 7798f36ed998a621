// BatchSpec: what batches of some data look like.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace frugal::train {

// What a batch of some data looks like (data/dataset.h).
struct BatchSpec {
  enum class Kind : uint8_t { images, rows, sequences, graph };
  // What a target is. The work of a run follows from it: the loss, what is right, how outputs are
  // read. Which of its metrics is measured is another choice.
  enum class Target : uint8_t {
    class_of_sample,  // [N] i64; of a graph a class for each node. With `mixes`: shares of classes
    labels,           // [N, classes] f32: an answer to each of several yes-or-no questions
    values,           // [N, classes] f32: numbers to predict
    class_of_pixel,   // [N, H, W] i64; images
    class_of_token,   // [N, T] i64; sequences
    boxes,            // objects in images, see data::BoxBatches
    views             // a second view of each image; classes only judge (train/metrics/knn.h)
  };
  // images [H, W, C]; rows [F]; sequences [T]; a graph, whose nodes are samples, [V, F]
  Shape sample;
  int64_t classes = 0;
  Kind kind = Kind::images;
  Target target = Target::class_of_sample;
  // What evaluations measure beside loss and accuracy: a name of train/metrics/metric_names.h that
  // goes with `target`, or that of a metric of one's own task. Empty: nothing, or usual_metric()
  // where no target can be counted as right.
  std::string metric = {};
  bool mixes = false;  // training batches hold mixed samples, and targets are shares of classes
  // sequences
  int64_t vocabulary = 0;
  std::vector<std::string> token_extras = {};  // [N, T] i64
  // graph
  NamedTensors extras = {};
  // Does a step save the input like any other activation, and release it when the first layer has
  // run? A policy may then pack it. Where the source holds batches, it does not. The answer is one
  // for a run, since it says which tensors a policy packs.
  bool releases_input = false;
  // The samples of a batch of training on a rank; the last one of an epoch may have fewer. Losses
  // whose logits are large make them in parts, in all batches of a run or in none, since that says
  // which tensors are saved. 0: not known, so each batch goes by its own logits.
  int64_t whole_batch = 0;
  bool has_several_labels() const { return target == Target::labels; }
  bool has_values() const { return target == Target::values; }
  bool has_boxes() const { return target == Target::boxes; }
  bool has_views() const { return target == Target::views; }
  bool target_of_each_pixel() const { return target == Target::class_of_pixel; }
  bool target_of_each_token() const { return target == Target::class_of_token; }
  bool is_sparse() const { return find_tensor(extras, "x_row_ptr").defined(); }
};

// Is the input of a batch of so many samples so large that a step should release it? Images and
// rows of 64 MiB and more.
bool is_large_input(const BatchSpec& spec, int64_t samples);

// "class_of_sample", as the enumerator.
const char* target_name(BatchSpec::Target target);

// What speed counts: "images", "rows", "tokens" (padding is among them) or "nodes".
const char* unit_of(const BatchSpec& spec);
int64_t units_of(const BatchSpec& spec, const Batch& batch);
// A batch of so many samples, not filled: for `meta`.
Batch shape_of_batch(const BatchSpec& spec, int64_t samples, Device device);

}  // namespace frugal::train
