// Device memory that only one piece of work uses. For .cu files.
#pragma once
#include <memory>

namespace frugal {
class SegmentPool;
}

namespace frugal::cuda {

// While a Scope lives, new tensors of the current device lie here, and nothing goes back to the
// system. This memory goes back when the pool and all those tensors are gone, and no sooner:
// recorded work touches what is free here.
class PrivatePool {
 public:
  PrivatePool();
  ~PrivatePool();
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;

  class Scope {
   public:
    explicit Scope(PrivatePool& pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    int device_;
  };

 private:
  int device_;
  std::shared_ptr<SegmentPool> pool_;
};

}  // namespace frugal::cuda
