// A linear layer whose initial weights are chosen by whoever makes it.
#pragma once
#include "models/init.h"
#include "models/module.h"

namespace frugal::models {

// [..., in] -> [..., out]. Parameters: weight [out, in] as `layout` says of files, bias [out]
// unless undefined.
class Dense : public Module {
 public:
  explicit Dense(Tensor weight, Tensor bias = {}, Layout layout = Layout::plain);
  Variable forward(Variable x, Context& context) override;
  const Variable& weight() const { return weight_; }  // for functions that do more in one pass
  const Variable& bias() const { return bias_; }

 private:
  Variable weight_, bias_;
};

// Weights N(0, deviation^2), biases 0.
std::shared_ptr<Dense> normal_dense(Init& init, int64_t in, int64_t out, double deviation,
                                    Module::Layout layout = Module::Layout::plain);
// Glorot's uniform weights, biases 0. Ref: Glorot & Bengio 2010, equation 16.
std::shared_ptr<Dense> xavier_dense(Init& init, int64_t in, int64_t out);

// Inverted dropout, where it is asked for and training. Errors: no random stream then.
Variable drop(const Variable& x, double p, Context& context);

}  // namespace frugal::models
