// GCNII: deep graph convolutions with initial residuals and identity mappings.
// Ref: Chen et al. 2020, equation 5. Inputs: models/graph_layers.h.
#pragma once
#include "models/zoo/graph_keys.h"

namespace frugal::models {

struct GcniiOptions : GnnOptions {
  GcniiOptions() {
    hidden = 64;
    layers = 64;
    dropout = 0.6;
  }
  double alpha = 0.1;  // weight of the initial residual
  double theta = 0.5;  // lambda in the paper: layer l uses its weight with the factor beta =
                       // log(theta / l + 1)

  static Published<GcniiOptions> published() { return {{"gcnii", {}}}; }
  static std::vector<Option<GcniiOptions>> list() {
    return joined(
        keys::of_graph_networks<GcniiOptions>(),
        {{{"alpha", range::number(0, 1),
           "gcnii: share of the first layer's output in every layer; null: 0.1.", Key::own},
          &GcniiOptions::alpha},
         {{"theta", range::positive(100),
           "gcnii: weights of layer l count log(theta / l + 1); null: 0.5.", Key::own},
          &GcniiOptions::theta}});
  }
};

// [V, F] -> [V, num_classes]. x0 = relu(lins.0(x)). Layer l: h = (1 - alpha) A x + alpha x0, x =
// relu((1 - beta) h + beta h weight1), where A is the normalised adjacency with self-loops. lins.1
// is applied to the last x, or with jumping knowledge to the outputs of all layers. There is
// dropout before every layer, also the first, so there is no separate input_dropout. Names as in
// PyTorch Geometric: lins.{0,1}.{weight,bias}, convs.{i}.weight1 [hidden, hidden]. A layer keeps h
// and a sign; with batch norm it keeps h and the input of the norm.
class Gcnii : public GraphModule {
 public:
  // Errors: alpha outside [0, 1], theta <= 0, an input_dropout above 0.
  Gcnii(Init& init, const GcniiOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  double alpha_, theta_;
  Variable first_weight_, first_bias_;
  std::vector<Variable> weights_;
  std::shared_ptr<Linear> last_;
};

}  // namespace frugal::models
