// SupervisedTask: work whose network gives an output for each target. A class of it says how such
// rows make a loss and what is right; this one runs the network and picks the rows that count.
#pragma once
#include "train/task.h"

namespace frugal::train {

// The outputs and targets that a loss is made of: all of a batch, or the rows that count.
struct Judged {
  Variable output;  // [..., C]
  Tensor target;    // [...] i64 or [rows, C] f32, as data/dataset.h says
  FloatTargets floats = FloatTargets::answers;
  Tensor weights = {};  // [rows] f32: the loss is the sum of weighted losses; undefined: their mean
  bool trains = false;  // else an evaluation, whose loss knows no weights of classes
};

class SupervisedTask : public Task {
 public:
  using Task::Task;
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;
  double weight(const Batch& batch) const override;

  // Notes in `pass` what count() needs, before the loss may write over the output.
  virtual void judge(const Judged& judged, ForwardPass& pass) const = 0;
  virtual Variable loss_of(Judged judged, const LossOptions& options) const = 0;
  // How many of the targets count. `target` on the host.
  virtual int64_t counted(const Tensor& target, FloatTargets floats) const = 0;

 protected:
  // The pass of these outputs.
  ForwardPass pass_of(Judged judged, const LossOptions& options) const;
};

}  // namespace frugal::train
