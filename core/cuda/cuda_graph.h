// Graph: a piece of work that is recorded once and queued again as a whole. A training step
// launches hundreds of kernels; a recorded step costs the host one call. The class is for code
// without CUDA's headers, too.
//
// A recording holds kernels and their arguments; addresses and numbers stay as they were. So inputs
// are written into the tensors that the recorded work read, and results are read from the tensors
// that it wrote. Memory taken while recording stays reserved for the graph. Tensors that outlive
// the work keep their addresses. The host says how far random streams have moved on
// (core/cuda/cuda_random.h), so that a replay draws what the same work would have drawn.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace frugal::cuda {

// Whether this thread is in capture(). If so, what it queues is recorded, and waiting for the
// device is an error.
bool recording();

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Records what `work` queues. Nothing runs until replay(). If `work` throws, nothing is recorded
  // and the exception goes on to the caller.  Errors: work that waits for the device; the message
  // names the call.
  void capture(const std::function<void()>& work);
  bool captured() const;
  // Runs the recorded work. Its random streams are `keys` keys and `steps` steps further than they
  // were when the work was recorded.
  // REQUIRES: captured().
  void replay(uint64_t keys = 0, uint64_t steps = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frugal::cuda
