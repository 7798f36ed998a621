#include "models/state.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/words/quoted.h"
#include "models/adapters/adapters.h"
#include "models/matrix_weight.h"
#include "models/published_names.h"
#include "models/resized_module.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr const char* kUntied = "lm_head.weight";  // the output head beside an embedding

constexpr size_t kListed = 10;  // names that a message lists for each kind of mismatch

// Files of masked language models have no pooler.
constexpr const char* kPoolers[] = {"bert.pooler.", "pre_classifier."};
bool is_of_pooler(const std::string& name) {
  return std::any_of(std::begin(kPoolers), std::end(kPoolers),
                     [&](const char* pooler) { return name.starts_with(pooler); });
}

std::string list(const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = fmt::format("\n  {} ({}):", title, names.size());
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) text += "\n    " + names[i];
  if (names.size() > kListed) text += fmt::format("\n    and {} more", names.size() - kListed);
  return text;
}

// A contiguous copy on the host, for files; on `meta` without values.
Tensor host_copy(const Tensor& tensor) {
  const Tensor copy = ops::clone(tensor);
  return copy.device().type == DeviceType::cuda ? to_device(copy, kCpu) : copy;
}

// The channels, the last axis here, come second in files.
Tensor channels_second(const Tensor& tensor) {
  std::vector<int> axes{0, tensor.dim() - 1};
  for (int axis = 1; axis < tensor.dim() - 1; ++axis) axes.push_back(axis);
  return tensor.permute(axes);
}
Tensor channels_last(const Tensor& tensor) {
  std::vector<int> axes{0};
  for (int axis = 2; axis < tensor.dim(); ++axis) axes.push_back(axis);
  axes.push_back(1);
  return tensor.permute(axes);
}

// Views in the other layout.
Tensor as_file(const Tensor& tensor, Module::Layout layout) {
  switch (layout) {
    case Module::Layout::conv_weight:
      return channels_second(tensor);
    case Module::Layout::transposed_linear:
      return tensor.transpose(0, 1);
    case Module::Layout::plain:
      break;
  }
  return tensor;
}

Tensor from_file(const Tensor& tensor, Module::Layout layout) {
  switch (layout) {
    case Module::Layout::conv_weight:
      return channels_last(tensor);
    case Module::Layout::transposed_linear:
      return tensor.transpose(0, 1);
    case Module::Layout::plain:
      break;
  }
  return tensor;
}

struct Target {
  Tensor tensor;
  Module::Layout layout = Module::Layout::plain;
  // A whole weight that stands for a packed one, or that is made of a packed one.
  MatrixWeight* converted = nullptr;
  ops::PackedMatrix packed = {};  // what the state has, if it has the weight packed
};

// Do the files of the module's state hold this parameter?
bool is_in_files(const Module& module, const Module::NamedParameter& p) {
  return !module.leaves_out_frozen() || p.parameter->requires_grad();
}

bool is_in_files(const Module& module, const Module::NamedBuffer& b) {
  return !module.leaves_out_frozen() || !b.packed;
}

std::map<std::string, Target> targets_of(Module& module, const StateOptions& options) {
  std::map<std::string, Target> targets;
  for (const auto& p : module.parameters())
    if (options.without_adapters ? !is_of_adapter(p.name) : is_in_files(module, p))
      targets[p.name] = {p.parameter->value(), p.layout};
  for (const auto& b : module.buffers())
    if (options.without_adapters || is_in_files(module, b)) targets[b.name] = {*b.buffer};
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
    if (is_in_files(module, p))
      state.emplace_back(p.name, to_file_layout(p.parameter->value(), p.layout));
  for (const auto& b : module.buffers())
    if (is_in_files(module, b)) state.emplace_back(b.name, host_copy(*b.buffer));
  return state;
}

NamedTensors state_views(Module& module) {
  NamedTensors state;
  for (const auto& p : module.parameters())
    if (is_in_files(module, p)) state.emplace_back(p.name, as_file(p.parameter->value(), p.layout));
  for (const auto& b : module.buffers())
    if (is_in_files(module, b)) state.emplace_back(b.name, *b.buffer);
  return state;
}

namespace {

// Whether every value of `from` is a value of `to`, except that floating-point values may be
// rounded.
bool converts(DType from, DType to) {
  if (is_floating(to) || is_floating(from)) return is_floating(from) && is_floating(to);
  return from != DType::bool_ && to != DType::bool_ && size_of(from) <= size_of(to);
}

struct Fitting {
  NamedTensors state;
  StateNotes notes;
  std::map<std::string, Target> targets;
};

bool is_coded(ops::MatrixFormat format) {
  return format == ops::MatrixFormat::int8 || format == ops::MatrixFormat::nf4;
}

// The weight of this name and shape as the state has it, if that is in codes.
ops::PackedMatrix packed_in(const std::map<std::string, Tensor>& state, const std::string& name,
                            int64_t rows, int64_t columns) {
  const auto scales = state.find(name + ".absmax");
  const auto codes = state.find(name);
  if (scales == state.end() || codes == state.end() || codes->second.dtype() != DType::u8)
    return {};
  const ops::MatrixFormat format =
      scales->second.dtype() == DType::u8 ? ops::MatrixFormat::nf4 : ops::MatrixFormat::int8;
  ops::PackedMatrix packed = ops::empty_packed(format, rows, columns, kMeta);
  for (const auto& [ending, part] : packed.parts()) {
    const auto found = state.find(name + ending);
    if (found == state.end() || found->second.shape() != part->shape() ||
        found->second.dtype() != part->dtype())
      return {};
    *part = found->second;
  }
  return packed;
}

// What the parts of weights are called where a state has them packed.
std::set<std::string> names_of_parts(Module& module) {
  const ops::PackedMatrix any = ops::empty_packed(ops::MatrixFormat::nf4, 1, 1, kMeta);
  std::set<std::string> names;
  for (const Module::NamedMatrix& m : module.matrices())
    for (const auto& [ending, part] : any.parts()) names.insert(m.name + ending);
  return names;
}

// Where the module and the state hold a weight in different formats, whole weights stand for both.
void compare_whole(Module& module, std::map<std::string, Target>& targets, NamedTensors& state) {
  std::map<std::string, Tensor> given(state.begin(), state.end());
  std::set<std::string> dropped;
  NamedTensors whole;
  for (const Module::NamedMatrix& m : module.matrices()) {
    MatrixWeight& weight = *m.weight;
    const auto found = given.find(m.name);
    if (found == given.end() || !targets.contains(m.name)) continue;
    ops::PackedMatrix packed = packed_in(given, m.name, weight.out(), weight.in());
    const bool coded = is_coded(weight.packed.format);
    const bool floats = is_floating(found->second.dtype());
    if (packed.defined() ? packed.format == weight.packed.format : !(coded && floats)) continue;
    const Tensor shape = Tensor::empty({weight.out(), weight.in()}, DType::f32, kMeta);
    for (const auto& [ending, part] : weight.packed.parts()) targets.erase(m.name + ending);
    if (packed.defined()) {
      for (const auto& [ending, part] : packed.parts()) dropped.insert(m.name + ending);
      whole.emplace_back(m.name, shape);
    }
    const Module::Layout layout = packed.defined() ? Module::Layout::plain : m.layout;
    targets[m.name] = {shape, layout, &weight, std::move(packed)};
  }
  std::erase_if(state, [&](const auto& entry) { return dropped.contains(entry.first); });
  state.insert(state.end(), whole.begin(), whole.end());
}

// The rows of a matrix; 0: there is none of this name.
int64_t rows_of(const std::map<std::string, const Tensor*>& given, const std::string& name) {
  const auto found = given.find(name);
  return found != given.end() && found->second->dim() > 0 ? found->second->size(0) : 0;
}

// Which row of a Swin's table a pair of tokens has follows from the window alone, so the module's
// own index stays.
void resize_positions(const std::map<std::string, Target>& targets, GridSampling sampling,
                      NamedTensors& state, StateNotes& notes) {
  for (auto& [name, tensor] : state) {
    const auto found = targets.find(name);
    if (found == targets.end() || found->second.tensor.shape() == tensor.shape()) continue;
    const Tensor& target = found->second.tensor;
    if (name.ends_with("relative_position_index")) {
      tensor = ops::clone(target);
    } else if (const auto moved = positions_on_grid(name, tensor, target.shape(), sampling)) {
      tensor = moved->tensor;
      notes.resized.push_back({name, moved->from, moved->to});
    }
  }
}

Fitting fitting(Module& module, const NamedTensors& published, const std::string& from,
                const StateOptions& options) {
  Fitting fit;
  std::map<std::string, Target>& targets = fit.targets;
  targets = targets_of(module, options);
  const auto has = [&](const std::string& name) { return targets.contains(name); };
  const std::string head = module.head_prefix();
  ResizedModule* const resized = module.as_resized();
  const std::string second = resized == nullptr ? "" : resized->auxiliary_head_prefix();
  const auto in_head = [&](const std::string& name) {
    return (!head.empty() && name.starts_with(head)) ||
           (!second.empty() && name.starts_with(second));
  };
  FRUGAL_CHECK(!options.reset_head || !head.empty(),
               "[load_state_dict] expected model.head keep, since this network has no head of its "
               "own{}",
               from.empty() ? "" : "; the weights are those of " + from);
  StateNotes& notes = fit.notes;
  std::set<std::string> known = names_of_parts(module);
  for (const auto& [name, target] : targets) known.insert(name);
  NamedTensors state = as_named_today(
      published, [&](const std::string& name) { return known.contains(name); }, &notes.ignored);
  compare_whole(module, targets, state);
  if (options.resize_positions)
    resize_positions(targets, options.sampling.value_or(sampling_of(published)), state, notes);
  std::map<std::string, const Tensor*> given;
  for (const auto& [name, tensor] : state) given[name] = &tensor;
  // RoBERTa's last layer is the second of its head.
  const std::string head_weight =
      head + (has(head + "out_proj.weight") ? "out_proj." : "") + "weight";
  const int64_t classes = has(head_weight) ? targets.at(head_weight).tensor.size(0) : 0;
  const int64_t classes_of_file = rows_of(given, head_weight);
  if (options.reset_head) {
    notes.classes = classes;
    notes.classes_of_file = classes_of_file;
    for (const auto& [name, tensor] : state)
      if (in_head(name) || (!has(name) && names_a_head(name))) notes.left_out.push_back(name);
    for (const std::string& name : notes.left_out) given.erase(name);
  }
  const bool has_pooler = std::any_of(given.begin(), given.end(),
                                      [](const auto& entry) { return is_of_pooler(entry.first); });
  std::vector<std::string> missing, unexpected, wrong, dtypes;
  for (const auto& [name, target] : targets) {
    const auto found = given.find(name);
    if (found == given.end()) {
      // Older files have no batch counter, and no result depends on it.
      if (name.ends_with("num_batches_tracked"))
        notes.uncounted.push_back(name);
      else if (options.reset_head && (in_head(name) || (!has_pooler && is_of_pooler(name))))
        notes.reset.push_back(name);
      else
        missing.push_back(name);
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
  const auto beside_head = [&](const std::vector<std::string>& names) {
    return !std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return in_head(name) || names_a_head(name) || is_of_pooler(name);
    });
  };
  const bool other_than_head =
      !dtypes.empty() || beside_head(missing) || beside_head(unexpected) || beside_head(wrong);
  const bool wrong_head = std::any_of(missing.begin(), missing.end(), in_head) ||
                          std::any_of(wrong.begin(), wrong.end(), in_head);
  const std::string of = from.empty() ? "" : " of " + from;
  if (wrong_head && !other_than_head)
    throw OtherNetwork(fmt::format(
        "[load_state_dict] expected weights of a last layer with {} classes, as the network "
        "has, got {}{}. model.head=reset (in C++: LoadOptions::reset_head) takes all other "
        "weights and starts that layer anew{}{}{}",
        classes,
        classes_of_file > 0 ? std::to_string(classes_of_file) : std::string("no such layer"), of,
        list("missing", missing), list("unexpected", unexpected), list("wrong shape", wrong)));
  if (!missing.empty() || !unexpected.empty() || !wrong.empty() || !dtypes.empty()) {
    const std::string what =
        fmt::format("[load_state_dict] the weights{} do not fit the model{}{}{}{}{}", of,
                    list("missing", missing), list("unexpected", unexpected),
                    list("wrong shape", wrong), list("wrong dtype", dtypes),
                    unexpected == std::vector<std::string>{kUntied}
                        ? "\nmodel.tied=false gives the network an output head of its own"
                        : "");
    // Integers are weights of no network.
    if (missing.empty() && unexpected.empty() && wrong.empty()) throw Error(what);
    throw OtherNetwork(what);
  }
  std::set<uint64_t> as_given;
  for (const auto& [name, tensor] : published) as_given.insert(tensor.storage()->id());
  for (auto& entry : state) {
    if (!given.contains(entry.first)) continue;
    const Target& target = targets.at(entry.first);
    if (!target.packed.defined())
      notes.as_given = notes.as_given && as_given.contains(entry.second.storage()->id());
    fit.state.push_back(std::move(entry));
  }
  return fit;
}

}  // namespace

StateNotes check_state_dict(Module& module, const NamedTensors& state, const std::string& from,
                            const StateOptions& options) {
  return fitting(module, state, from, options).notes;
}

namespace {

// The values of a weight [out, in] that was compared as a whole one.
Tensor whole_values(const Target& target, const Tensor& given, const ReadTensor& read) {
  if (!target.packed.defined()) return from_file(read(given), target.layout);
  ops::PackedMatrix packed = target.packed;
  for (const auto& [ending, part] : packed.parts()) *part = read(*part);
  const CategoryScope scope(Category::workspace);
  return ops::unpack_matrix(packed);
}

// Writes values on the host over those of a tensor of the module.
void put(const Tensor& to, const Tensor& values) {
  const bool cuda = to.device().type == DeviceType::cuda;
  ops::copy_into(to, cuda ? to_device(ops::contiguous(values), to.device()) : values);
  to.bump_version();
}

}  // namespace

StateNotes load_state_dict(Module& module, const NamedTensors& published, const std::string& from,
                           const StateOptions& options, const ReadTensor& read) {
  Fitting fit = fitting(module, published, from, options);
  const ReadTensor values = [&](const Tensor& x) {
    return read && x.device() == kMeta ? read(x) : x;
  };
  for (const auto& [name, tensor] : fit.state) {
    const Target& target = fit.targets.at(name);
    if (target.converted == nullptr) {
      put(target.tensor, from_file(values(tensor), target.layout));
      continue;
    }
    const Tensor whole = whole_values(target, tensor, values);
    MatrixWeight& weight = *target.converted;
    if (!weight.packed.defined()) {
      put(weight.whole.value(), whole);
      continue;
    }
    const ops::PackedMatrix packed = ops::pack_matrix(whole, weight.packed.format);
    const auto to = weight.packed.parts();
    const auto from_parts = packed.parts();
    for (size_t i = 0; i < to.size(); ++i) put(*to[i].second, *from_parts[i].second);
  }
  return std::move(fit.notes);
}

void to_dtype(Module& module, DType dtype) {
  CategoryScope scope(Category::parameter);
  for (const auto& p : module.parameters())
    p.parameter->set_value(ops::cast(p.parameter->value(), dtype));
  for (const auto& b : module.buffers())
    if (is_floating(b.buffer->dtype()) && !b.packed) *b.buffer = ops::cast(*b.buffer, dtype);
}

}  // namespace frugal::models
