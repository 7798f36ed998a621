// GCNII: deep graph convolutions with initial residuals and identity mappings.
// Ref: Chen et al. 2020, equation 5. Inputs: models/graph_layers.h.
#pragma once
#include "models/graph_layers.h"

namespace frugal::models {

struct GcniiOptions {
  int64_t in_features = 1433;
  int64_t hidden = 64;
  int64_t num_classes = 7;
  int64_t layers = 64;
  double alpha = 0.1;  // of the initial residual
  double theta = 0.5;  // lambda of the paper: layer l mixes its weight in by log(theta / l + 1)
  double dropout = 0.6;
};

// [V, F] -> [V, num_classes]: x0 = relu(lins.0(x)); layer l: h = (1 - alpha) A x + alpha x0,
// x = relu((1 - beta) h + beta h weight1) with A the normalised adjacency with self-loops; lins.1.
// Dropout before every layer, the first included. Names as PyTorch Geometric's:
// lins.{0,1}.{weight,bias}, convs.{i}.weight1 [hidden, hidden]. A layer keeps h and a sign.
class Gcnii : public Module {
 public:
  Gcnii(Init& init, const GcniiOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  GcniiOptions options_;
  GraphInputs inputs_;
  Variable first_weight_, first_bias_;
  std::vector<Variable> weights_;
  std::shared_ptr<Linear> last_;
};

}  // namespace frugal::models
