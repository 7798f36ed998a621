#include "models/module.h"

#include "autograd/functions.h"
#include "models/matrix_weight.h"

namespace frugal {

Variable HeadedModule::Head::output() const { return capped(linear(x, weight, bias)); }

Variable HeadedModule::Head::capped(const Variable& z) const {
  return soft_cap > 0 ? scale(tanh(scale(z, 1 / soft_cap)), soft_cap) : z;
}

void Context::set_model(const Module& model) {
  device = model.device();
  dtype = model.activations();
  keeps_frozen_statistics = model.keeps_frozen_statistics();
}

Variable& Module::register_parameter(const std::string& name, Tensor value, Layout layout) {
  parameters_.push_back(
      {name, std::make_shared<Variable>(Variable::parameter(std::move(value))), layout, nullptr});
  return *parameters_.back().variable;
}

std::shared_ptr<MatrixWeight> Module::register_matrix(const std::string& name, Tensor value,
                                                      Layout layout) {
  const auto matrix = std::make_shared<MatrixWeight>();
  matrix->whole = Variable::parameter(std::move(value));
  parameters_.push_back({name, {matrix, &matrix->whole}, layout, matrix});
  return matrix;
}

Tensor& Module::register_buffer(const std::string& name, Tensor value, BufferUse use) {
  buffers_.push_back({name, std::make_unique<Tensor>(std::move(value)), use});
  return *buffers_.back().tensor;
}

void Module::remove_parameter(const std::string& name) {
  std::erase_if(parameters_, [&](const Parameter& p) { return p.name == name; });
}

std::vector<Module::NamedModule> Module::modules() {
  std::vector<NamedModule> all{{"", this}};
  for (auto& [prefix, child] : children_)
    for (NamedModule& m : child->modules())
      all.push_back({m.name.empty() ? prefix : prefix + "." + m.name, m.module});
  return all;
}

std::vector<Module::NamedParameter> Module::parameters() {
  std::vector<NamedParameter> all;
  for (Parameter& p : parameters_)
    if (p.variable->defined()) all.push_back({p.name, p.variable.get(), p.layout, &p.frozen});
  for (auto& [prefix, child] : children_)
    for (NamedParameter& p : child->parameters())
      all.push_back({prefix + "." + p.name, p.parameter, p.layout, p.frozen});
  return all;
}

std::vector<Module::NamedBuffer> Module::buffers() {
  std::vector<NamedBuffer> all;
  for (Buffer& b : buffers_) all.push_back({b.name, b.tensor.get(), false, b.use});
  for (Parameter& p : parameters_)
    if (p.matrix != nullptr && p.matrix->packed.defined())
      for (const auto& [ending, part] : p.matrix->packed.parts())
        all.push_back({p.name + ending, part, true, BufferUse::equal});
  for (auto& [prefix, child] : children_)
    for (NamedBuffer& b : child->buffers())
      all.push_back({prefix + "." + b.name, b.buffer, b.packed, b.use});
  return all;
}

std::vector<Module::NamedMatrix> Module::matrices() {
  std::vector<NamedMatrix> all;
  for (Parameter& p : parameters_)
    if (p.matrix != nullptr) all.push_back({p.name, p.matrix.get(), p.layout});
  for (auto& [prefix, child] : children_)
    for (NamedMatrix& m : child->matrices())
      all.push_back({prefix + "." + m.name, m.weight, m.layout});
  return all;
}

Device Module::device() const {
  for (const Parameter& p : parameters_)
    if (p.variable->defined())
      return p.variable->device();
    else
      return p.matrix->packed.device();
  // The first child that has parameters: those behind it may wait for their values on `meta`.
  for (const auto& [prefix, child] : children_)
    if (!child->parameters().empty() || !child->matrices().empty()) return child->device();
  return kCpu;
}

std::string Module::head_prefix() {
  const std::vector<NamedParameter> all = parameters();
  if (all.empty()) return "";
  const std::string& last = all.back().name;
  const std::string prefix = last.substr(0, last.rfind('.') + 1);
  for (const NamedParameter& p : all)
    if (!prefix.empty() && p.name == prefix + "weight" && p.parameter->value().dim() == 2)
      return prefix;
  return "";
}

void Module::zero_grad() {
  for (NamedParameter& p : parameters()) p.parameter->zero_grad();
}

}  // namespace frugal
