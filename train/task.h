// Task: what a batch means. A task says how a loss is made of a model and a batch, what is counted
// and measured, how outputs are read, and what may be done with a batch as a whole. The trainer,
// evaluations, the planner and measurements know no more of a kind of work than its task tells.
//
//   class Denoising : public train::Task {
//     train::ForwardPass loss(Module& model, Batch& batch, Context& context,
//                             const train::LossOptions&) const override {
//       train::ForwardPass pass;
//       pass.loss = mse_loss(run(model, batch, context), Variable::constant(batch.target));
//       return pass;
//     }
//   };
//
// train/tasks/ holds a file for each kind of work; make_task() chooses one by a BatchSpec.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "data/dataset.h"
#include "models/module.h"
#include "train/batch_spec.h"

namespace frugal::distributed {
class Communicator;
}

namespace frugal::train {

// What a loss is made with, beside the batch.
struct LossOptions {
  double label_smoothing = 0;
  bool keep_output = false;  // false: the loss may write over the output, or make it in parts
  // Brings together the rows of all ranks that share the batch, in the order of the ranks. Empty:
  // the batch is whole.
  std::function<Tensor(const Tensor& rows)> gather = {};
};

// How many targets of a batch count, and how many of these the network got right.
struct Counts {
  int64_t counted = 0, correct = 0;
  std::optional<double> weight = {};  // what the loss was divided by; none: `counted`
};

// What the device computes for a batch, and what the host reads of it, which may be later.
struct ForwardPass {
  Variable loss;            // a scalar: the (weighted) mean over the targets that count
  Variable output;          // undefined without keep_output, and where the task has none
  NamedTensors terms = {};  // scalars that make the loss, by name; empty: it is one term
  int64_t samples = 0;      // how many the batch has; the caller of Task::loss() sets it
  Counts counts = {};       // what is known at once
  // What Task::count() reads; undefined where `counts` says all. `target` has the
  // rows that were judged. A captured step updates nothing when each of its i64 targets is
  // kIgnored.
  Tensor target, answers;
  FloatTargets floats = FloatTargets::answers;  // what a floating target is
  bool weighs_classes = false;                  // the loss was divided by weights of classes
  std::shared_ptr<const void> kept = {};        // what the backward pass reads on the host
};

// A measure of the outputs of an evaluation, which adds up over its batches. The result does not
// depend on how samples were cut into batches. Thread safety: none.
class Metric {
 public:
  virtual ~Metric() = default;
  // Called once, before the evaluation. A measure that compares outputs with what the network makes
  // of other data prepares that here. `stop` may be empty; when it returns true, the evaluation
  // ends and nothing is added.
  virtual void begin(Module& model, const std::function<bool()>& stop) {
    static_cast<void>(model);
    static_cast<void>(stop);
  }
  // Are outputs read? If not, add() is never called.
  virtual bool reads_outputs() const { return true; }
  // Adds the outputs of a batch. `batch` is as the source gave it, without its input.
  virtual void add(const Tensor& output, const Batch& batch) = 0;
  // The measure of all that was added. `loss` is the mean over the evaluation.
  virtual double value(double loss) const = 0;
  // false: a lower value is better. The best checkpoint and early stopping go by it.
  virtual bool higher_is_better() const { return true; }
  // Several processes may evaluate together, each with its share of every batch. Can what their
  // metrics counted be added up? If not, each process gets all outputs in the order of the batches,
  // which may be many bytes.
  virtual bool adds_up() const { return false; }
  // Adds what the metrics of all ranks counted; all ranks call it together. REQUIRES: adds_up().
  virtual void add_ranks(distributed::Communicator& ranks) { static_cast<void>(ranks); }
  // Further numbers by name, such as one for each class.
  virtual std::vector<std::pair<std::string, double>> details() const { return {}; }
};

// Thread safety: calls of const functions from one thread at a time.
class Task {
 public:
  explicit Task(BatchSpec spec = {}) : spec_(std::move(spec)) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // What its batches look like and which metric they are judged by.
  const BatchSpec& spec() const { return spec_; }

  // --- A step ---

  // Moves the batch to the model's device, in the form that `model` takes. Here: place_batch()
  // (train/place_batch.h).
  virtual Batch place(Batch batch, const Module& model) const;
  // The model's outputs for a placed batch. Moves input and extras out of it, so that the input's
  // bytes are freed as soon as no layer needs them.
  virtual Variable run(Module& model, Batch& batch, Context& context) const;
  // The forward pass and the loss for a placed batch, on whose target the loss is made. Results are
  // equal for equal random streams. A pass may change batch statistics of the model, and queues
  // that are written like them, but not while something is recomputed or measured.
  virtual ForwardPass loss(Module& model, Batch& batch, Context& context,
                           const LossOptions& options) const = 0;
  // Reads on the host what a pass found. Here: pass.counts, or all samples where it has none.
  virtual Counts count(const ForwardPass& pass) const;
  // Is the loss never below 0? Bounds and tests of divergence that take 0 for the least loss ask
  // so.
  virtual bool has_loss_of_at_least_0(Module& model) const {
    static_cast<void>(model);
    return true;
  }
  // Called after each update of the parameters, so that a network may follow another one.
  // `progress` is the share of the run's updates that are done, in (0, 1].
  virtual void after_update(Module& model, double progress) const {
    static_cast<void>(model);
    static_cast<void>(progress);
  }

  // --- A batch as a whole, on the host ---

  // How much a batch weighs in a step of several batches: the number of targets that count. Here:
  // the number of samples.
  virtual double weight(const Batch& batch) const;
  // May a measurement take some samples of a batch alone?
  virtual bool is_divisible(const Batch& batch) const;
  // Views of the samples [begin, end). A batch that cannot be divided stays whole.
  virtual Batch part(const Batch& batch, int64_t begin, int64_t end) const;
  // A batch of so many samples, not filled, as the planner needs it on `meta`.
  virtual Batch shape(int64_t samples, Device device) const;

  // --- Evaluation and prediction ---

  // Is the share of right targets of any meaning? Here: what spec().target says.
  virtual bool has_accuracy() const;
  // A new measure; null: loss and accuracy are all there is.
  virtual std::unique_ptr<Metric> metric() const { return nullptr; }
  // Outputs as a reader wants them, on the host: probabilities or values, [rows, C] f32.
  virtual Tensor predict(const Tensor& output) const;

 protected:
  BatchSpec spec_;
};

using TaskPtr = std::shared_ptr<const Task>;

// What Task::part() gives, as a copy that shares no bytes with the batch.
Batch copy_of(const Task& task, const Batch& batch, int64_t begin, int64_t end);

// Does a metric of the task read the outputs of an evaluation?
bool reads_outputs(const Task& task);
// Which direction of the task's metric is better? Without a metric: true.
bool higher_is_better(const Task& task);

}  // namespace frugal::train
