// Layers with parameters, and Sequential. Parameter and buffer names are PyTorch's. A constructor
// without an Init draws from default_init(). Layers without parameters: models/activations.h.
#pragma once
#include <concepts>
#include <string>
#include <type_traits>
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
  Conv2d(int64_t in, int64_t out, int64_t kernel, const Conv2dOptions& options = {},
         bool bias = false)
      : Conv2d(default_init(), in, out, kernel, options, bias) {}
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
  explicit BatchNorm2d(int64_t channels, double eps = 1e-5, double momentum = 0.1)
      : BatchNorm2d(default_init(), channels, eps, momentum) {}
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
  Linear(int64_t in, int64_t out) : Linear(default_init(), in, out) {}
  Variable forward(Variable x, Context& context) override;

 private:
  Variable weight_, bias_;
};

// Children in order, named "0", "1", ..., so that the first layer's weight is "0.weight":
//
//   Sequential net{Linear(784, 128), Relu(), Linear(128, 10)};
//
// A BatchNorm2d with a Relu behind it runs as one function, which keeps fewer bytes for backward.
class Sequential : public Module {
 public:
  Sequential() = default;
  // Modules that are moved in, or std::shared_ptrs to modules.
  template <class... Modules>
  requires(sizeof...(Modules) > 0) explicit Sequential(Modules&&... modules) {
    (append(std::forward<Modules>(modules)), ...);
  }
  template <class M>
  requires std::derived_from<M, Module>
  void append(std::shared_ptr<M> module) { append_module(std::move(module)); }
  template <class M>
  requires(std::derived_from<M, Module> && !std::is_reference_v<M>) void append(M&& module) {
    append_module(std::make_shared<M>(std::move(module)));
  }
  Variable forward(Variable x, Context& context) override;
  bool empty() const { return modules_.empty(); }
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t index) const;  // Errors: no such child

 private:
  void append_module(std::shared_ptr<Module> module);  // Errors: null
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace frugal::models
