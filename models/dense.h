// Layers whose initial weights are given by the caller.
#pragma once
#include "models/init.h"
#include "models/layers.h"
#include "ops/options.h"

namespace frugal::models {

// [..., in] -> [..., out]. Parameters: weight [out, in], which files hold as `layout` says; bias
// [out], unless undefined.
class Dense : public LinearLayer {
 public:
  explicit Dense(Tensor weight, Tensor bias = {}, Layout layout = Layout::plain);
};

// [N, H, W, in] -> [N, OH, OW, out]. Parameters: weight [out, R, S, in/groups], bias [out].
class FilledConv2d : public Module {
 public:
  FilledConv2d(Tensor weight, Tensor bias, const Conv2dOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  Conv2dOptions options_;
  Variable weight_, bias_;
};

// A Dense with weights from N(0, deviation^2) and biases 0.
std::shared_ptr<Dense> normal_dense(Init& init, int64_t in, int64_t out, double deviation,
                                    Module::Layout layout = Module::Layout::plain);

// Dropout with probability p in training; x itself otherwise, and if p is 0. Errors: no random
// stream in training.
Variable drop(const Variable& x, double p, Context& context);
// Stochastic depth: the same for whole samples of a branch's output x [N, ...], which the others
// scale by 1 / (1 - p). Ref: Huang et al. 2016.
Variable drop_samples(const Variable& x, double p, Context& context);
// Its probability in block `block` of `blocks`: it grows linearly from 0 at the first block to
// `last` at the last one.
double depth_rate(double last, int64_t block, int64_t blocks);

}  // namespace frugal::models
