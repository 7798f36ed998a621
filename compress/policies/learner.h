// Learner: a policy that decides by what it saw in training.
#pragma once
#include <optional>

#include "compress/policies/learned.h"

namespace frugal::compress {

class Learner {
 public:
  virtual ~Learner() = default;
  // What checkpoints keep. A policy of the same options that takes this in decides as this one.
  virtual Learned learned() const = 0;
  // Errors, and no change: another policy's or another version; a list that is missing, unknown or
  // of the wrong length; a number that no run gives. An empty one makes the policy forget all; only
  // BudgetPolicy keeps its plan.
  virtual void restore_learned(const Learned& learned) = 0;
  // What policies know together that learned from parts of one batch, each its own: by rank, of the
  // processes that train together. Means, where decisions follow from numbers.
  // Errors: a policy that knows what no mean can tell.
  virtual Learned joined(const std::vector<Learned>& of_ranks) const = 0;
  // Does the policy learn from the step that begins as number `step`? Then decisions of later steps
  // may differ. A step that is captured and rerun shows the policy nothing.
  virtual bool learns_at(uint64_t step) const = 0;
  // Do the tensors of a run's first step, before the policy has learned, take other bytes than
  // those of later steps?
  virtual bool differs_at_first() const { return false; }
  // Passes on `meta`, where there is nothing to learn from, are those of a policy that has learned;
  // with `first`, those of one that has not. Passes on other devices do not change.
  void set_first_on_meta(bool first) { first_on_meta_ = first; }
  bool first_on_meta() const { return first_on_meta_; }

  // The step that the next passes belong to; none: each pass is a step, of the number
  // SaveInfo::step. Where a step has several batches, the policy learns from all of them or none.
  void set_step(std::optional<uint64_t> step) { step_ = step; }
  // Does the policy learn from the pass of this number, if it begins now?
  bool learns_in(uint64_t pass) const { return learns_at(step_of(pass)); }

 protected:
  uint64_t step_of(uint64_t pass) const { return step_.value_or(pass); }

 private:
  std::optional<uint64_t> step_;
  bool first_on_meta_ = false;
};

}  // namespace frugal::compress
