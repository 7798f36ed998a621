// A multilayer perceptron: linear, relu, dropout, ..., linear.
#pragma once
#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct MlpOptions {
  int64_t in_features = 784;
  std::vector<int64_t> hidden{256, 128};
  int64_t num_classes = 10;
  double dropout = 0;

  static Published<MlpOptions> published() { return {{"mlp", {}}}; }
  static std::vector<Option<MlpOptions>> list() {
    return {{{"hidden", range::integers(1, 1 << 20, 0, 64), "mlp: widths of the hidden layers."},
             &MlpOptions::hidden},
            {keys::kDropout, &MlpOptions::dropout},
            {keys::kInFeatures, &MlpOptions::in_features},
            {keys::kNumClasses, &MlpOptions::num_classes}};
  }
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
