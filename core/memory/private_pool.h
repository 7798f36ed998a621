// Device memory that belongs to one piece of captured work. For .cu files.
#pragma once
#include <memory>

namespace frugal {
class SegmentPool;
}

namespace frugal::cuda {

// While a Scope lives, new tensors of the current device lie in this pool, and no memory goes back
// to the system. The pool's memory goes back when the pool and all its tensors are gone, and not
// before: captured work writes to memory that is free here.
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
