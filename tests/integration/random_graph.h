// Random graphs of differentiable functions: ops, shapes, consumers, checkpoints and roots are
// drawn from a seed, and are the same for it whatever the policy, the dtype or the device.
#pragma once
#include "autograd/engine.h"
#include "autograd/functions.h"

namespace frugal {

using Numbers = std::vector<std::vector<double>>;  // the gradient of each leaf; empty: it has none

// large: tensors of up to 2^15 elements, enough for slices of every kind; else of up to 3000.
struct RandomGraphOptions {
  DType dtype = DType::f32;
  Device device = kCpu;
  bool large = false;
  bool checkpoints = true;  // false: segments run like the rest
};

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed, const RandomGraphOptions& options = {});

  // The roots, each of a graph of its own over the same leaves. `batch` changes what enters and
  // what dropout draws, not the graph.
  Variables forward(uint64_t batch = 0);
  // Backward of all roots, each of which goes when it was walked; adds to the leaves' gradients.
  void backward(Variables roots, BackwardObserver* observer = nullptr) const;
  // sum <dy, root>: what backward() differentiates.
  double value(const Variables& roots) const;

  RngKey rng() const { return rng_.state(); }
  const Variables& leaves() const { return leaves_; }
  Numbers gradients() const;
  void zero_grad();

 private:
  friend class GraphBuilder;
  Variable leaf(size_t index, const Shape& shape, bool parameter, double limit);

  uint64_t seed_;
  RandomGraphOptions options_;
  Rng rng_;
  Variables leaves_;
};

// [shape] in [-limit, limit), the same numbers in every dtype; nothing on meta.
Tensor random_values(RngKey key, const Shape& shape, DType dtype, Device device, double limit = 1);

}  // namespace frugal
