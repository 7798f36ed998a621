// SlotOptimizer: what optimizers with a count of steps and a few state tensors for each parameter
// share: groups, updates of single leaves, checkpoints.
#pragma once
#include "optim/leaf_index.h"
#include "optim/optimizer.h"

namespace frugal::optim {

class SlotOptimizer : public Optimizer {
 public:
  void step(double lr) final;
  void zero_grad() final;
  bool step_leaf(const GradAccumulator& leaf, double lr) final;
  // "steps/<parameter>" [] i64 and "<part>/<parameter>", of the parameters updated so far.
  NamedTensors state() const final;
  // Errors also: a parameter's state without one of its parts.
  void load_state(const NamedTensors& state) final;
  bool recordable() const final { return true; }  // so is update()
  void take_back() final;

 protected:
  struct Part {
    std::string name;
    Shape shape;
    DType dtype;
  };
  struct Slot {
    std::string name;
    Variable parameter;
    double lr_scale, weight_decay;
    int64_t steps = 0;          // updates, the one under way included
    std::vector<Tensor> parts;  // empty before the first update, which finds zeros
  };

  // op: for messages. weight_decay: of groups that name none.  Errors: a negative weight decay, a
  // parameter or a name that comes twice.
  SlotOptimizer(const char* op, const std::vector<ParameterGroup>& groups, double weight_decay);
  // The state of one parameter; the same at every call.
  virtual std::vector<Part> parts_of(const Slot& slot) const = 0;
  // One update at rate lr (lr_scale is in it) of a slot whose parameter has a gradient.
  struct Update {
    const Slot* slot;
    double lr;
    const Tensor& gradient() const { return slot->parameter.grad(); }
  };
  virtual void update(const std::vector<Update>& updates) = 0;

 private:
  void update_slots(const std::vector<Slot*>& slots, double lr);
  const char* op_;
  std::vector<Slot> slots_;
  LeafIndex slot_of_;
};

}  // namespace frugal::optim
