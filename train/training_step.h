// One batch forward and backward, in the order that keeps memory low.
#pragma once
#include <functional>
#include <map>
#include <optional>

#include "autograd/engine.h"
#include "autograd/saved_tensor.h"
#include "core/error.h"
#include "core/memory.h"
#include "data/dataset.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/task.h"

namespace frugal::train {

// Thrown when a loss or a gradient is not finite.
class NotFinite : public Error {
 public:
  using Error::Error;
};

class Ranks;
const Ranks& one_rank();  // train/ranks/ranks.h

// The bytes of a step on the device. `activation` and `packed` are live when the forward pass has
// ended; `packed` is the compressed part of their sum. `packed_elements` is the number of elements
// that are packed; checkpoints do not hold it. `peak` is the highest total of the step, and
// `at_peak` is its breakdown.
struct StepMemory {
  int64_t activation = 0, packed = 0, peak = 0;
  CategoryBytes at_peak{};
  int64_t packed_elements = 0;
  int64_t saved() const { return activation + packed; }
  void raise(const StepMemory& other);  // keeps the higher of each measure
};

// Starts a step's measure and ends it.
void begin_peak(Device device);
void end_peak(Device device, StepMemory& memory);
// What is live between forward and backward, and how many elements of it are packed.
void measure_saved(Device device, StepMemory& memory);

struct BatchResult {
  double loss = 0;      // the (weighted) mean over the targets that count
  int64_t counted = 0;  // the number of targets that count, see Task::count()
  int64_t correct = 0;  // the number of counted targets that the network got right
  int64_t samples = 0;
  // How much the loss weighs beside those of other batches: `counted`, or a sum of weights.
  double weight = 0;
  StepMemory memory;           // has activation, packed and packed_elements
  std::optional<double> norm;  // what PassOptions::norm gave
};

// How a step was made, to make it again.
struct PassSettings {
  uint64_t number = 0;  // what begin_step() got
  RngKey rng;           // dropout's generator before the step
  double label_smoothing = 0;
  int64_t checkpointed_blocks = 0;
};

struct PassOptions {
  double label_smoothing = 0;
  double weight = 1;  // the factor of this batch's loss in the gradient
  std::function<Tensor(const Tensor& rows)> gather = {};  // see LossOptions
  LeafFn leaf_done = {};                                  // see backward()
  // The backward pass of a loss that is not finite is run, too: other ranks wait for its gradients.
  bool backward_anyway = false;
  // Called when the forward pass has ended, with its loss and what it saved.
  std::function<void(const Variable& loss, const StepMemory& memory)> before_backward = {};
  // Called when the backward pass has ended. Returns the norm of the gradients as a scalar on the
  // device, which is read with the loss where the loss is read that late (CUDA).
  std::function<Tensor()> norm = {};
};

// Places a batch and computes the task's loss of it. On meta the numbers are 0.
ForwardPass forward_pass(const Task& task, Module& model, Batch& batch, Context& context,
                         const LossOptions& options);
// Reads what a pass found, and `beside` (a scalar, or undefined) into `number`, with one wait for
// the device. A batch without targets that count has no loss, and no gradient.
BatchResult read(const Task& task, const ForwardPass& pass, const Tensor& beside = {},
                 double* number = nullptr);

// What run_forward() gives.
struct Outcome {
  Variable output, loss;  // output: undefined unless the options keep it
  BatchResult result;
};
// Calls forward_pass(), and read() for what it found.
Outcome run_forward(const Task& task, Module& model, Batch& batch, Context& context,
                    const LossOptions& options = {.keep_output = true});

// Adds the batch's gradients to the parameters' and drops the batch. With a loss that is not finite
// there is no backward, unless options.backward_anyway. On meta the loss is 0 and nothing is
// counted as correct.
BatchResult forward_backward(const Task& task, Module& model, Batch batch, Context& context,
                             SavePolicy* policy, const PassOptions& options);

// Updates each parameter as soon as its gradient is complete, and drops the gradient, so that
// gradients are never all alive. Parameters stay as they are from the first gradient on that is not
// finite.
class UpdateInBackward {
 public:
  // `squares`, where it is not null, gets the sum of squares of each gradient.
  using Squares = std::map<const GradAccumulator*, double>;
  UpdateInBackward(Optimizer& optimizer, double lr, Squares* squares = nullptr)
      : optimizer_(optimizer), lr_(lr), each_(squares != nullptr ? squares : &own_) {}
  UpdateInBackward(const UpdateInBackward&) = delete;
  UpdateInBackward& operator=(const UpdateInBackward&) = delete;
  LeafFn leaf_done();  // REQUIRES: this outlives the backward pass
  // The 2-norm of the parameters' gradients, with the bits of optim::grad_norm().
  double norm(const std::vector<Variable>& parameters) const;

 private:
  Optimizer& optimizer_;
  double lr_, squares_ = 0;
  Squares own_;
  Squares* each_;
};

// Weights of the batches of one accumulated step, so that its loss is the mean over all their
// targets that count. How many these are is known when the last batch has come; so a batch weighs
// as its targets do beside those of the first batch, and in the end all gradients are multiplied by
// factor(). If there are several ranks, each has a share of every batch, which weighs by its own
// targets.
class PartWeights {
 public:
  // Both must outlive it.
  PartWeights(const Task& task, int64_t parts, const Ranks& ranks = one_rank())
      : task_(task), ranks_(ranks), parts_(parts) {}
  // PassOptions::weight; the batch is still on the host. copies: so many ranks have this very
  // batch, or 1 where each has a share.
  double next(const Batch& batch, int copies = 1);
  double factor() const;  // 1 where all batches have as many targets as the first

 private:
  const Task& task_;
  const Ranks& ranks_;
  int64_t parts_;
  // Task::weight() of the first batch that has any, and the sum of all batches' weights.
  double first_ = 0, sum_ = 0;
};

// Looks for the first value that is not finite: in the parameters, their gradients, the batch's
// input, in what a forward pass of the batch saves, in its order, the buffers and the output.
// Empty: all are finite. The buffers change as in any forward pass.
std::string find_nonfinite(const Task& task, Module& model, const Batch& batch, Context& context);

}  // namespace frugal::train
