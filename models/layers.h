// The layers the zoo is built from. Parameter and buffer names are PyTorch's.
#pragma once
#include <string>
#include <vector>

#include "autograd/functions.h"
#include "models/init.h"
#include "models/module.h"

namespace frugal::models {

enum class ConvInit : uint8_t { pytorch, kaiming_fan_in, kaiming_fan_out };

// [N, H, W, in] -> [N, OH, OW, out]. Parameters: weight [out, R, S, in/groups], bias [out] if
// asked.
class Conv2d : public Module {
 public:
  Conv2d(Init& init, int64_t in, int64_t out, int64_t kernel, const Conv2dOptions& options = {},
         bool bias = false, ConvInit weights = ConvInit::pytorch);
  Variable forward(Variable x, Context& context) override;

 private:
  Conv2dOptions options_;
  Variable weight_, bias_;
};

// A square convolution of odd kernel with "same" padding, the residual networks' only kind.
std::shared_ptr<Conv2d> conv_same(Init& init, int64_t in, int64_t out, int64_t kernel,
                                  int64_t stride, ConvInit weights, int64_t groups = 1);

// [..., C] -> [..., C]. Parameters: weight, bias [C]; buffers: running_mean, running_var [C],
// num_batches_tracked [] i64.
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(Init& init, int64_t channels, double eps = 1e-5, double momentum = 0.1);
  Variable forward(Variable x, Context& context) override;
  Variable forward_relu(const Variable& x, Context& context);
  Variable forward_add_relu(const Variable& x, Variable residual, Context& context);

 private:
  BatchNormOptions prepare(const Context& context);
  BatchNormStats stats() const { return {running_mean_, running_var_}; }
  double eps_, momentum_;
  Variable weight_, bias_;
  Tensor &running_mean_, &running_var_, &batches_;
};

// [..., in] -> [..., out]. Parameters: weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(Init& init, int64_t in, int64_t out);
  Variable forward(Variable x, Context& context) override;

 private:
  Variable weight_, bias_;
};

// Children in order, named "0", "1", ...
class Sequential : public Module {
 public:
  void append(std::shared_ptr<Module> module);
  Variable forward(Variable x, Context& context) override;
  bool empty() const { return modules_.empty(); }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace frugal::models
