// SlotOptimizer: the base of optimizers that keep a few state tensors and a count of steps for each
// parameter. It has the groups, the updates of single leaves, and the checkpoints.
#pragma once
#include "optim/optimizer.h"

namespace frugal::optim {

// Errors: a rate that is negative or not finite.
void check_rate_of_step(double lr);

class SlotOptimizer : public Optimizer {
 public:
  void step(double lr) final;
  void zero_grad() final;
  bool step_leaf(const GradAccumulator& leaf, double lr) final;
  // "steps/<parameter>" [] i64, if steps are counted, and "<part>/<parameter>", for the parameters
  // that were updated so far.
  NamedTensors state() const final;
  // Errors: those of Optimizer::load_state(); a parameter whose state lacks a part.
  void load_state(const NamedTensors& state) final;
  bool capturable() const final { return true; }  // update() does the same work at every call
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
    int64_t steps = 0;          // number of updates; the present one is counted
    std::vector<Tensor> parts;  // zeros in the first update that needs them; empty before it
  };

  // op: for messages. weight_decay: of groups that name none.  Errors: a weight decay or an
  // lr_scale that is negative or not finite, a parameter or a name that comes twice.
  SlotOptimizer(const char* op, const std::vector<ParameterGroup>& groups, double weight_decay);
  // The state of one parameter; the same at every call. REQUIRES: at least one part.
  virtual std::vector<Part> parts_of(const Slot& slot) const = 0;
  // Does the next update need the parts? If not, it makes none; those that there are stay.
  virtual bool needs_parts() const { return true; }
  // Is the number of updates a part of the state? REQUIRES: the same at every call.
  virtual bool counts_steps() const { return true; }
  // One update of a slot whose parameter has a gradient. lr is the rate times lr_scale.
  struct Update {
    const Slot* slot;
    double lr;
    const Tensor& gradient() const { return slot->parameter.grad(); }
  };
  virtual void update(const std::vector<Update>& updates) = 0;
  // For without_state() of a class O.
  template <class O>
  static std::unique_ptr<Optimizer> fresh(const O& optimizer) {
    auto copy = std::make_unique<O>(optimizer);
    copy->forget();
    return copy;
  }
  void forget();  // the state of all parameters

 private:
  void update_slots(const std::vector<Slot*>& slots, double lr);
  const char* op_;
  std::vector<Slot> slots_;
  LeafIndex slot_of_;
};

}  // namespace frugal::optim
