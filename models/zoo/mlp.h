// A multilayer perceptron: linear, relu, dropout, ..., linear.
#pragma once
#include "models/layers.h"

namespace frugal::models {

struct MlpOptions {
  int64_t in_features = 784;
  std::vector<int64_t> hidden{256, 128};
  int64_t num_classes = 10;
  double dropout = 0;
};

// [N, ...] -> [N, num_classes]. All axes after the first are flattened; images [N, H, W, C] are
// flattened in PyTorch's order C, H, W. Names: fc1, fc2, ...
class Mlp : public Module {
 public:
  Mlp(Init& init, const MlpOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  MlpOptions options_;
  std::vector<std::shared_ptr<Linear>> layers_;
};

}  // namespace frugal::models
