#include "models/state.h"

#include <map>

#include "core/quoted.h"
#include "models/published_names.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr size_t kListed = 20;  // names that a message lists for each kind of mismatch

std::string list(const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = fmt::format("\n  {} ({}):", title, names.size());
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) text += "\n    " + names[i];
  if (names.size() > kListed) text += "\n    ...";
  return text;
}

// A contiguous copy on the host, for files; on `meta` without values.
Tensor host_copy(const Tensor& tensor) {
  const Tensor copy = ops::clone(tensor);
  return copy.device().type == DeviceType::cuda ? to_device(copy, kCpu) : copy;
}

// Views in the other layout.
Tensor as_file(const Tensor& tensor, Module::Layout layout) {
  switch (layout) {
    case Module::Layout::conv_weight:
      return tensor.permute({0, 3, 1, 2});
    case Module::Layout::transposed_linear:
      return tensor.transpose(0, 1);
    default:
      return tensor;
  }
}

Tensor from_file(const Tensor& tensor, Module::Layout layout) {
  switch (layout) {
    case Module::Layout::conv_weight:
      return tensor.permute({0, 2, 3, 1});
    case Module::Layout::transposed_linear:
      return tensor.transpose(0, 1);
    default:
      return tensor;
  }
}

struct Target {
  Tensor tensor;
  Module::Layout layout = Module::Layout::plain;
};

std::map<std::string, Target> targets_of(Module& module) {
  std::map<std::string, Target> targets;
  for (const auto& p : module.parameters()) targets[p.name] = {p.parameter->value(), p.layout};
  for (const auto& b : module.buffers()) targets[b.name] = {*b.buffer};
  return targets;
}

}  // namespace

Tensor to_file_layout(const Tensor& tensor, Module::Layout layout) {
  return host_copy(as_file(tensor, layout));
}

Tensor from_file_layout(const Tensor& tensor, Module::Layout layout) {
  return ops::clone(from_file(tensor, layout));
}

NamedTensors state_dict(Module& module) {
  NamedTensors state;
  for (const auto& p : module.parameters())
    state.emplace_back(p.name, to_file_layout(p.parameter->value(), p.layout));
  for (const auto& b : module.buffers()) state.emplace_back(b.name, host_copy(*b.buffer));
  return state;
}

NamedTensors state_views(Module& module) {
  NamedTensors state;
  for (const auto& p : module.parameters())
    state.emplace_back(p.name, as_file(p.parameter->value(), p.layout));
  for (const auto& b : module.buffers()) state.emplace_back(b.name, *b.buffer);
  return state;
}

namespace {

// Whether every value of `from` is a value of `to`, except that floating-point values may be
// rounded.
bool converts(DType from, DType to) {
  if (is_floating(to) || is_floating(from)) return is_floating(from) && is_floating(to);
  return from != DType::bool_ && to != DType::bool_ && size_of(from) <= size_of(to);
}

NamedTensors fitting(const std::map<std::string, Target>& targets, const NamedTensors& published,
                     const std::string& from) {
  NamedTensors state =
      as_named_today(published, [&](const std::string& name) { return targets.contains(name); });
  std::map<std::string, const Tensor*> given;
  for (const auto& [name, tensor] : state) given[name] = &tensor;
  std::vector<std::string> missing, unexpected, wrong, dtypes;
  for (const auto& [name, target] : targets) {
    const auto found = given.find(name);
    // Older files have no batch counter, and no result depends on it.
    if (found == given.end()) {
      if (!name.ends_with("num_batches_tracked")) missing.push_back(name);
      continue;
    }
    const Shape expected = as_file(target.tensor, target.layout).shape();
    if (found->second->shape() != expected)
      wrong.push_back(
          fmt::format("{}: expected {}, got {}", name, expected, found->second->shape()));
    const DType dtype = target.tensor.dtype(), got = found->second->dtype();
    if (!converts(got, dtype))
      dtypes.push_back(fmt::format("{}: expected {}, got {}", name,
                                   is_floating(dtype) ? "f32, f16, bf16 or f64" : "i64 or smaller",
                                   name_of(got)));
  }
  for (const auto& [name, tensor] : given)
    if (!targets.contains(name)) unexpected.push_back(printable(name));
  FRUGAL_CHECK(missing.empty() && unexpected.empty() && wrong.empty() && dtypes.empty(),
               "[load_state_dict] the weights{} do not fit the model{}{}{}{}",
               from.empty() ? "" : " of " + from, list("missing", missing),
               list("unexpected", unexpected), list("wrong shape", wrong),
               list("wrong dtype", dtypes));
  return state;
}

}  // namespace

void check_state_dict(Module& module, const NamedTensors& state, const std::string& from) {
  fitting(targets_of(module), state, from);
}

void load_state_dict(Module& module, const NamedTensors& published, const std::string& from) {
  const std::map<std::string, Target> targets = targets_of(module);
  for (const auto& [name, tensor] : fitting(targets, published, from)) {
    const Target& target = targets.at(name);
    const Tensor given_here = from_file(tensor, target.layout);
    ops::copy_into(target.tensor,
                   target.tensor.device().type == DeviceType::cuda
                       ? to_device(ops::contiguous(given_here), target.tensor.device())
                       : given_here);
    target.tensor.bump_version();
  }
}

void to_dtype(Module& module, DType dtype) {
  CategoryScope scope(Category::parameter);
  for (const auto& p : module.parameters())
    p.parameter->set_value(ops::cast(p.parameter->value(), dtype));
  for (const auto& b : module.buffers())
    if (is_floating(b.buffer->dtype())) *b.buffer = ops::cast(*b.buffer, dtype);
}

}  // namespace frugal::models
