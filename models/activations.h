// Layers without parameters, for Sequential: activation functions, dropout, pooling, flattening.
// Images are NHWC. What each keeps for backward stands at its function in autograd/functions.h.
#pragma once
#include "autograd/functions.h"
#include "models/module.h"

namespace frugal::models {

class Identity : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

class Relu : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

class LeakyRelu : public Module {
 public:
  explicit LeakyRelu(double slope = 0.01) : slope_(slope) {}
  Variable forward(Variable x, Context& context) override;

 private:
  double slope_;
};

class Elu : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

class Gelu : public Module {
 public:
  explicit Gelu(frugal::Gelu kind = frugal::Gelu::exact) : kind_(kind) {}
  Variable forward(Variable x, Context& context) override;
  frugal::Gelu kind() const { return kind_; }

 private:
  frugal::Gelu kind_;
};

class Silu : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

class Sigmoid : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

class Tanh : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

class Softmax : public Module {
 public:
  explicit Softmax(int axis = -1) : axis_(axis) {}
  Variable forward(Variable x, Context& context) override;

 private:
  int axis_;
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int axis = -1) : axis_(axis) {}
  Variable forward(Variable x, Context& context) override;

 private:
  int axis_;
};

// In training zeroes with probability p and scales the rest by 1 / (1 - p).
// Errors: p outside [0, 1); no random stream (Context::rng) in training.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Variable forward(Variable x, Context& context) override;

 private:
  double p_;
};

// [N, ...] -> [N, the product of the rest]. Images [N, H, W, C] are flattened in PyTorch's order C,
// H, W, so that weights that were trained there fit.
class Flatten : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

// [N, H, W, C] -> [N, OH, OW, C].
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Pool2dOptions& options = {}) : options_(options) {}
  // Windows of kernel x kernel, side by side unless `stride` says otherwise.
  explicit MaxPool2d(int64_t kernel, int64_t stride = 0, int64_t padding = 0);
  Variable forward(Variable x, Context& context) override;

 private:
  Pool2dOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(const Pool2dOptions& options = {}) : options_(options) {}
  explicit AvgPool2d(int64_t kernel, int64_t stride = 0, int64_t padding = 0);
  Variable forward(Variable x, Context& context) override;

 private:
  Pool2dOptions options_;
};

// [N, H, W, C] -> [N, height, width, C], whatever H and W are.
class AdaptiveAvgPool2d : public Module {
 public:
  AdaptiveAvgPool2d(int64_t height, int64_t width) : height_(height), width_(width) {}
  Variable forward(Variable x, Context& context) override;

 private:
  int64_t height_, width_;
};

// [N, H, W, C] -> [N, C].
class GlobalAvgPool2d : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

}  // namespace frugal::models
