// HeldCopies: what was made of tensors that a source of batches holds, so that it is not made again
// for each batch. Internal.
#pragma once
#include <tuple>

#include "autograd/record.h"
#include "core/memo.h"
#include "core/tensor_identity.h"

namespace frugal::train {

// Drops from all HeldCopies what no training step has asked for: a step then takes the same memory
// behind an evaluation as behind a start from a checkpoint.
void forget_evaluated_copies();

// Drops everything from all HeldCopies when it ends.
struct HeldCopiesScope {
  HeldCopiesScope() = default;
  ~HeldCopiesScope();
  HeldCopiesScope(const HeldCopiesScope&) = delete;
  HeldCopiesScope& operator=(const HeldCopiesScope&) = delete;
};

class AnyHeldCopies {
 public:
  AnyHeldCopies();
  virtual void forget(bool trained_too) = 0;

 protected:
  ~AnyHeldCopies() = default;
};

// REQUIRES: it lives as long as the program; keys are tuples that begin with a TensorIdentity.
// Not thread-safe.
template <class Key, class Value>
class HeldCopies final : public AnyHeldCopies {
 public:
  explicit HeldCopies(size_t most) : kept_(most) {}

  template <class Make>
  const Value& find_or_make(const Key& key, const Make& make) {
    forget_gone(kept_);
    Entry& entry = kept_.find_or_make(key, [&] { return Entry{make()}; });
    entry.trained = entry.trained || grad_enabled();
    return entry.value;
  }
  void forget(bool trained_too) override {
    kept_.forget_if([&](const Key&, const Entry& entry) { return trained_too || !entry.trained; });
  }

 private:
  struct Entry {
    Value value;
    bool trained = false;  // whether it was asked for where gradients are recorded
  };
  Memo<Key, Entry> kept_;
};

}  // namespace frugal::train
