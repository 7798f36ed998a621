// Module: named parameters, buffers and children, and a forward. Names equal the reference
// libraries', joined by dots.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "core/named_tensors.h"
#include "core/rng.h"
#include "core/tensor.h"

namespace frugal {

class HeadedModule;
class ResizedModule;
struct MatrixWeight;  // models/matrix_weight.h
namespace models {
class Detector;
class LinearLayer;
class SelfSupervised;
}  // namespace models

class Module;

constexpr int64_t kAllBlocks = INT64_MAX;

// What a forward pass needs beside its input. `rng` gives dropout its keys; `extras` are the
// batch's other tensors, by the names that models document.
struct Context {
  bool training = true;
  Rng* rng = nullptr;
  // So many blocks keep only their input in training and are recomputed. The first ones: by their
  // turn in backward the others have given back their memory.
  int64_t checkpointed_blocks = 0;
  int64_t block = 0;         // number of the next block; counted if any block is checkpointed
  Device device = kCpu;      // the device of the model
  DType dtype = DType::f32;  // the dtype of activations: f32 or bf16
  bool keeps_frozen_statistics = false;  // see Module::keeps_frozen_statistics()
  NamedTensors extras = {};
  // Takes `device`, `dtype` and `keeps_frozen_statistics` from the model.
  void set_model(const Module& model);
  // Undefined if there is no such tensor.
  Tensor extra(std::string_view name) const { return find_tensor(extras, name); }
};

class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(Module&&) = default;  // parameters, buffers and children stay where they are in memory
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  Module& operator=(Module&&) = delete;

  // A caller that moves x in lets its bytes go as soon as no layer needs them.
  virtual Variable forward(Variable x, Context& context) = 0;

  // What a parameter is, so that files in PyTorch's layouts can be converted where they are read or
  // written.
  enum class Layout : uint8_t {
    plain,
    conv_weight,        // [K, R, S, C] here, [K, C, R, S] in files
    transposed_linear,  // [out, in] here, [in, out] in files
  };
  struct NamedParameter {
    std::string name;
    Variable* parameter;
    Layout layout;
    bool* frozen;  // freeze() (models/freeze.h) froze it, and thaw() trains it again
  };
  // What a step of training makes of a buffer, where each rank has its share of a batch.
  enum class BufferUse : uint8_t {
    statistics,  // each rank changes it by its share; all take that of rank 0
    equal,       // nothing changes it, or all ranks change it alike
  };
  struct NamedBuffer {
    std::string name;
    Tensor* buffer;
    bool packed = false;  // a part of a packed weight, which nothing changes while training
    BufferUse use = BufferUse::statistics;
  };
  struct NamedMatrix {
    std::string name;  // names the parameter, if the weight is whole
    MatrixWeight* weight;
    Layout layout;
  };
  // In registration order, depth first. Optimizers take them as they are:
  // optim::Sgd(model.parameters(), {.momentum = 0.9}).
  std::vector<NamedParameter> parameters();
  Device device() const;  // where the parameters are; cpu if there are none
  DType activations() const { return activations_; }  // f32 or bf16
  void set_activations(DType dtype) { activations_ = dtype; }
  // running_mean, running_var, num_batches_tracked; also the parts of packed weights
  std::vector<NamedBuffer> buffers();
  std::vector<NamedMatrix> matrices();  // weights of linear products, which may be packed
  void zero_grad();                     // drops all gradients
  // What the names of the last layer's parameters begin with, such as "fc.". That layer has an
  // output for each class. Empty: there is no such layer, as in a network whose outputs share the
  // weights of an embedding. Here: the layer of the last parameter, if its weight is a matrix.
  virtual std::string head_prefix();
  // This network in a role that some tasks know; null: it does not play the role.
  virtual HeadedModule* as_headed() { return nullptr; }
  virtual ResizedModule* as_resized() { return nullptr; }
  virtual models::Detector* as_detector() { return nullptr; }
  virtual models::SelfSupervised* as_self_supervised() { return nullptr; }
  virtual models::LinearLayer* as_linear_layer() { return nullptr; }
  // This module with an empty name and all below it, in registration order, depth first.
  struct NamedModule {
    std::string name;
    Module* module;
  };
  std::vector<NamedModule> modules();
  // Drops what the network made for earlier batches and has no use for in the next step. Called
  // before each step, so that a step takes the same memory in a run that was resumed before it.
  virtual void forget_idle() {}
  // Do norms whose parameters require no gradient use their running statistics, unchanged, also in
  // training? No: they use the batch's, as in PyTorch. freeze() (models/freeze.h) sets it.
  bool keeps_frozen_statistics() const { return keeps_frozen_statistics_; }
  void keep_frozen_statistics(bool keep) { keeps_frozen_statistics_ = keep; }
  // Do files of this network's state (models/state.h) leave out its frozen parameters, which lie in
  // another file? No, unless somebody says so: a run that trains adapters beside the weights of
  // model.weights does.
  bool leaves_out_frozen() const { return leaves_out_frozen_; }
  void leave_out_frozen(bool leave_out) { leaves_out_frozen_ = leave_out; }

 protected:
  Variable& register_parameter(const std::string& name, Tensor value,
                               Layout layout = Layout::plain);
  void remove_parameter(const std::string& name);  // REQUIRES: a parameter of this module itself
  // A parameter [out, in] that may be packed while it is frozen (models/pack.h). Then it is no
  // parameter; its parts are buffers.
  std::shared_ptr<MatrixWeight> register_matrix(const std::string& name, Tensor value,
                                                Layout layout = Layout::plain);
  Tensor& register_buffer(const std::string& name, Tensor value,
                          BufferUse use = BufferUse::statistics);
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> module) {
    children_.emplace_back(name, module);
    return module;
  }

 private:
  struct Parameter {
    std::string name;
    std::shared_ptr<Variable> variable;
    Layout layout;
    std::shared_ptr<MatrixWeight> matrix;  // which holds the variable; null: nothing packs it
    bool frozen = false;
  };
  struct Buffer {
    std::string name;
    std::unique_ptr<Tensor> tensor;
    BufferUse use;
  };
  std::vector<Parameter> parameters_;
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  DType activations_ = DType::f32;
  bool keeps_frozen_statistics_ = false;
  bool leaves_out_frozen_ = false;
};

// A module whose outputs are linear(x, weight, bias), perhaps with a cap: a loss may take them in
// parts and never hold them all (linear_cross_entropy()).
class HeadedModule : public Module {
 public:
  struct Head {
    Variable x, weight, bias;  // bias may be undefined
    double soft_cap = 0;       // above 0: z becomes soft_cap tanh(z / soft_cap)
    Variable output() const;
    Variable capped(const Variable& z) const;  // z, where soft_cap says so capped
  };
  virtual Head before_output(Variable input, Context& context) = 0;
  HeadedModule* as_headed() final { return this; }
  Variable forward(Variable input, Context& context) override {
    return before_output(std::move(input), context).output();
  }
};

}  // namespace frugal
