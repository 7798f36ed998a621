// A network that lives elsewhere, lent to steps on `meta`: for a program that has one network, and
// no function that makes another one.
#pragma once
#include <memory>
#include <vector>

#include "autograd/gradient.h"
#include "models/module.h"

namespace frugal::train {

// Tensors on `meta` for each parameter and buffer of a network. While a Scope lives they are the
// network's, and its own values and gradients wait beside. The network must compute with what it
// registered alone: a tensor that it holds in another way stays where it is. Thread safety: one
// thread; no graph of the network is alive when a Scope begins or ends.
class BorrowedModel {
 public:
  // The network must outlive this.
  explicit BorrowedModel(Module& model);
  BorrowedModel(const BorrowedModel&) = delete;
  BorrowedModel& operator=(const BorrowedModel&) = delete;

  Module& model() const { return model_; }

  class Scope {
   public:
    explicit Scope(BorrowedModel& borrowed);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BorrowedModel& borrowed_;
    std::vector<Tensor> parameters_, buffers_;  // the network's own
    std::vector<GradAccumulator> gradients_;
  };

 private:
  Module& model_;
  std::vector<Tensor> parameters_, buffers_;
};

}  // namespace frugal::train
