// Late arguments: what recorded kernels (core/cuda_graph.h) are given anew before each replay, such
// as learning rates. For .cu files and, through the class, for code without CUDA's headers.
//
// They come from the host's own code, an optimizer's step: record() runs it while work is recorded,
// and renew() once more before each replay, when it queues nothing and only its arguments are sent.
// That code knows nothing of this; its kernels take their tables by with_late()
// (core/cuda_late_kernel.h), and lie in what with_late() calls.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace frugal::cuda {

class LateArguments {
 public:
  // Runs `work`, whose kernels do nothing in replays in which `guard`, [] u8 on the device, is 0.
  // Forgets what was recorded before.  REQUIRES: in Graph::capture().
  void record(const Tensor& guard, const std::function<void()>& work);
  // Runs `work` for the next replay; the host may write to what it has given at once.
  // Errors: it queues work by itself, or gives other arguments, in number or bytes, than recorded.
  void renew(const std::function<void()>& work);
  bool recorded() const { return !items_.empty(); }

  // For with_late(). Whose record() or renew() this thread is in, or null.
  static LateArguments* current();
  // Where the next `bytes` lie on the device; null in renew(), when the kernels are queued already.
  const void* place(const void* value, int64_t bytes);
  const uint8_t* guard() const { return guard_.data<uint8_t>(); }

 private:
  struct Block {  // sent at once
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
  size_t next_ = 0;  // of the items, in renew()
};

}  // namespace frugal::cuda
