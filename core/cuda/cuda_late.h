// Late arguments: arguments of captured kernels (core/cuda/cuda_graph.h) that get new values before
// each rerun, such as learning rates. The class is for code without CUDA's headers, too.
//
// The host's own code gives the values, for example an optimizer's step(). capture() runs that code
// while work is captured. renew() runs it once more before each rerun; then nothing is queued and
// only the arguments are sent to the device. That code needs no change, except that its kernels get
// their tables through with_late() (core/cuda/cuda_late_kernel.h) and are launched only inside
// with_late().
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace frugal::cuda {

class LateArguments {
 public:
  // Runs `work`. In a rerun, its kernels do nothing if `guard`, [] u8 on the device, is 0. Forgets
  // what was captured before.  REQUIRES: the caller is in Graph::capture().
  void capture(const Tensor& guard, const std::function<void()>& work);
  // Runs `work` for the next rerun. The host may change the values that it gave as soon as this
  // returns.
  // Errors: `work` queues something outside with_late(), or gives arguments whose number or size
  // differs from the captured ones.
  void renew(const std::function<void()>& work);
  bool captured() const { return !items_.empty(); }

  // For with_late(): the object whose capture() or renew() this thread is in, or null.
  static LateArguments* current();
  // The place of the next `bytes` on the device. Null in renew(), when the kernels are queued
  // already.
  const void* place(const void* value, int64_t bytes);
  const uint8_t* guard() const { return guard_.data<uint8_t>(); }

 private:
  struct Block {  // bytes that are sent in one copy
    std::shared_ptr<void> there;
    Tensor here;
    int64_t used = 0;
  };
  struct Item {
    size_t block;
    int64_t begin, bytes;
  };
  void run(const std::function<void()>& work);

  Tensor guard_;
  std::vector<Block> blocks_;
  std::vector<Item> items_;
  size_t next_ = 0;  // in renew(): index of the next item
};

}  // namespace frugal::cuda
