// Layers with parameters, and Sequential. Parameter and buffer names are PyTorch's. A constructor
// without an Init draws from default_init(). Layers without parameters: models/activations.h.
#pragma once
#include <concepts>
#include <memory>
#include <optional>
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
  Conv2d(Init& init, int64_t in, int64_t out, Pair kernel, const Conv2dOptions& options = {},
         bool bias = false, ConvInit weights = ConvInit::pytorch);
  Conv2d(Init& init, int64_t in, int64_t out, int64_t kernel, const Conv2dOptions& options = {},
         bool bias = false, ConvInit weights = ConvInit::pytorch)
      : Conv2d(init, in, out, Pair{kernel, kernel}, options, bias, weights) {}
  Conv2d(int64_t in, int64_t out, int64_t kernel, const Conv2dOptions& options = {},
         bool bias = false)
      : Conv2d(default_init(), in, out, kernel, options, bias) {}
  Variable forward(Variable x, Context& context) override;
  Conv2dCall call(Variable x) const { return {std::move(x), weight_, bias_, options_}; }

 private:
  Conv2dOptions options_;
  Variable weight_, bias_;
};

// A square convolution of odd kernel with "same" padding, the residual networks' only kind.
std::shared_ptr<Conv2d> conv_same(Init& init, int64_t in, int64_t out, int64_t kernel,
                                  int64_t stride, ConvInit weights, int64_t groups = 1);

// Does a batch norm with this weight use, and move, the statistics of the batch?
bool norms_by_batch(const Context& context, const Variable& weight);

// [..., C] -> [..., C]. Parameters: weight, bias [C]; buffers: running_mean, running_var [C],
// num_batches_tracked [] i64.
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(Init& init, int64_t channels, double eps = 1e-5, double momentum = 0.1);
  explicit BatchNorm2d(int64_t channels, double eps = 1e-5, double momentum = 0.1)
      : BatchNorm2d(default_init(), channels, eps, momentum) {}
  Variable forward(Variable x, Context& context) override;
  Variable forward_relu(Variable x, Context& context);
  Variable forward_add_relu(const Variable& x, Variable residual, Context& context);
  // forward_add_relu() of conv(x). The output of `conv` may then never be whole.
  Variable forward_add_relu(const Conv2d& conv, Variable x, Variable residual, Context& context);
  // Holds weight and bias at 1 and 0. That is no reason for running statistics in training.
  void fix_scale();

 private:
  BatchNormOptions prepare(const Context& context);
  BatchNormStats stats() const { return {running_mean_, running_var_}; }
  double eps_, momentum_;
  bool has_fixed_scale_ = false;
  Variable weight_, bias_;
  Tensor &running_mean_, &running_var_, &batches_;
};

// [N, ..., C] -> the same shape. Statistics of a sample's positions and a group's channels.
// Parameters: weight, bias [C]. Errors: groups that do not divide the channels.
class GroupNorm : public Module {
 public:
  GroupNorm(Init& init, int64_t groups, int64_t channels, double eps = 1e-5);
  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5)
      : GroupNorm(default_init(), groups, channels, eps) {}
  Variable forward(Variable x, Context& context) override;

 private:
  int64_t groups_;
  double eps_;
  Variable weight_, bias_;
};

// A layer y = x weight^T + bias, [..., in] -> [..., out], that may carry an adapter
// (models/adapters/adapters.h).
// Parameters: weight [out, in]; bias [out] if the layer has one.
// An adapter adds lora_A.weight [r, in], lora_B.weight [out, r] and, for DoRA,
// lora_magnitude_vector [out].
class LinearLayer : public Module {
 public:
  Variable forward(Variable x, Context& context) final;
  LinearLayer* as_linear_layer() final { return this; }
  // For functions that fuse this layer with others.
  const MatrixWeight& matrix() const { return *weight_; }
  const Variable& weight() const;                 // Errors: it is packed (models/pack.h)
  const Variable& bias() const { return bias_; }  // undefined: there is none

  struct Adapter {
    Variable a, b, magnitude;  // magnitude: undefined without DoRA
    double scale = 1, dropout = 0;
  };
  const Adapter* adapter() const { return adapter_.get(); }  // null: it carries none
  // Gives the layer an adapter that changes no output yet: a is drawn, b is 0.
  // Errors: it carries one already.
  struct AdapterOptions {
    int64_t rank = 8;
    double scale = 1, dropout = 0;
    bool magnitude = false;
  };
  void add_adapter(Init& init, const AdapterOptions& options);
  // The lengths of the rows of weight + scale b a, [out]. REQUIRES: an adapter.
  Tensor adapted_norms() const;
  // Sets the magnitude, if there is one, so that the adapter changes no output while b is 0: for
  // weights that were loaded after add_adapter().
  void reset_magnitude();
  // Writes what the adapter does into the weight, and takes the adapter away.
  void merge_adapter();

 protected:
  explicit LinearLayer(Tensor weight, Layout layout = Layout::plain);
  void set_bias(Tensor bias);

 private:
  std::shared_ptr<MatrixWeight> weight_;
  Variable bias_;
  std::unique_ptr<Adapter> adapter_;
};

// [..., in] -> [..., out]. Parameters: weight [out, in], bias [out] unless told otherwise.
class Linear : public LinearLayer {
 public:
  Linear(Init& init, int64_t in, int64_t out, bool bias = true);
  Linear(int64_t in, int64_t out, bool bias = true) : Linear(default_init(), in, out, bias) {}
};

// Children in order, named "0", "1", ..., so that the first layer's weight is "0.weight":
//
//   Sequential net{Linear(784, 128), Relu(), Linear(128, 10)};
//
// Some pairs run as one function, which keeps fewer bytes for backward: a BatchNorm2d with a Relu
// behind it, a Residual whose branch ends in a BatchNorm2d with a Relu behind it, and a Linear with
// a Gelu behind it.
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
  // Which children are blocks that may be checkpointed: those from `begin` to before `end` are one.
  // Others never are. Without this call, each child is a block.
  // Errors: blocks that are empty, overlap, are not in order or end behind the last child.
  struct Block {
    size_t begin, end;
  };
  void set_blocks(std::vector<Block> blocks);
  Variable forward(Variable x, Context& context) override;
  bool empty() const { return modules_.empty(); }
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t index) const;  // Errors: no such child

 protected:
  // Runs the children from `begin` to before `end`, without checkpoints of their own.
  Variable run(Variable x, Context& context, size_t begin, size_t end) const;
  void append_module(std::shared_ptr<Module> module);  // Errors: null

 private:
  std::vector<std::shared_ptr<Module>> modules_;
  std::optional<std::vector<Block>> blocks_;
};

// y = x + branch(x), or shortcut(x) + branch(x). Children: the branch's, named "0", "1", ..., and
// "shortcut" if there is one. A block of its own: within it nothing is checkpointed.
class Residual : public Sequential {
 public:
  explicit Residual(const std::vector<std::shared_ptr<Module>>& branch,
                    std::shared_ptr<Sequential> shortcut = nullptr);
  Variable forward(Variable x, Context& context) override;
  // relu(forward(x)) in one function. REQUIRES: ends_in_norm().
  Variable forward_relu(Variable x, Context& context);
  bool ends_in_norm()
      const;  // Is the branch's last child a BatchNorm2d with another one before it?

 private:
  Variable around(Variable x, Context& context) const;
  std::shared_ptr<Sequential> shortcut_;
};

}  // namespace frugal::models
