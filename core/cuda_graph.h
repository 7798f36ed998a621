// A piece of work, recorded once and queued again as a whole: launching a step's hundreds of
// kernels costs the host one call. For .cu files and, through the pointer, for code without CUDA's
// headers.
//
// What is recorded is kernels with their arguments: addresses and numbers stay as they were. So
// inputs are written into the tensors that the recorded work read, and results are read from those
// that it made. Memory taken while recording stays reserved for the graph; tensors that outlive
// the work keep their addresses. Random streams move on by what the host says
// (core/cuda_random.h), so that a replay draws what the same work would have drawn.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace frugal::cuda {

// Whether this thread is in capture(): then what it queues is recorded, and waiting is an error.
bool recording();

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Records what `work` queues; nothing of it runs until replay(). If `work` throws, nothing is
  // recorded and the exception goes on.  Errors: work that waits for the device, naming the call.
  void capture(const std::function<void()>& work);
  bool captured() const;
  // Random streams lie `keys` keys and `steps` steps behind those of the recorded work.
  // REQUIRES: captured.
  void replay(uint64_t keys = 0, uint64_t steps = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frugal::cuda
