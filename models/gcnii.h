// GCNII: deep graph convolutions with initial residuals and identity mappings.
// Ref: Chen et al. 2020, equation 5. Inputs: models/graph_layers.h.
#pragma once
#include "models/graph_layers.h"

namespace frugal::models {

struct GcniiOptions : GnnOptions {
  GcniiOptions() {
    hidden = 64;
    layers = 64;
    dropout = 0.6;
  }
  double alpha = 0.1;  // of the initial residual
  double theta = 0.5;  // lambda of the paper: layer l mixes its weight in by log(theta / l + 1)
};

// [V, F] -> [V, num_classes]: x0 = relu(lins.0(x)); layer l: h = (1 - alpha) A x + alpha x0,
// x = relu((1 - beta) h + beta h weight1) with A the normalised adjacency with self-loops; lins.1
// on the last x, or on all layers' with jumping knowledge. Dropout before every layer, the first
// included: there is no input_dropout beside it. Names as PyTorch Geometric's:
// lins.{0,1}.{weight,bias}, convs.{i}.weight1 [hidden, hidden]. A layer keeps h and a sign; with
// batch norm h and the norm's input.
class Gcnii : public GraphModule {
 public:
  // Errors: alpha outside of [0, 1], theta <= 0, an input_dropout.
  Gcnii(Init& init, const GcniiOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  double alpha_, theta_;
  Variable first_weight_, first_bias_;
  std::vector<Variable> weights_;
  std::shared_ptr<Linear> last_;
};

}  // namespace frugal::models
