// Graph: a piece of work that is captured once and queued again as a whole. A training step
// launches hundreds of kernels; a captured step costs the host one call. The class is for code
// without CUDA's headers, too.
//
// A graph holds kernels and their arguments; addresses and numbers stay as they were. So inputs
// are written into the tensors that the captured work read, and results are read from the tensors
// that it wrote. Memory taken in the capture stays reserved for the graph. Tensors that outlive
// the work keep their addresses. The host says how far random streams have moved on
// (core/cuda/cuda_random.h), so that a rerun draws what the same work would have drawn.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace frugal::cuda {

// Whether this thread is in capture(). If so, what it queues is captured, and waiting for the
// device is an error.
bool capturing();

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Captures what `work` queues. Nothing runs until rerun(). If `work` throws, nothing is captured
  // and the exception goes on to the caller.  Errors: work that waits for the device; the message
  // names the call.
  void capture(const std::function<void()>& work);
  bool captured() const;
  // Runs the captured work. Its random streams are `keys` keys and `steps` steps further than they
  // were when the work was captured.
  // REQUIRES: captured().
  void rerun(uint64_t keys = 0, uint64_t steps = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frugal::cuda
