#include "distributed/sharded_optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "autograd/gradient.h"
#include "core/integers.h"
#include "distributed/gradient_buckets.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/optimizer/clip.h"
#include "ops/optimizer/sgd.h"
#include "optim/slots.h"

namespace frugal::distributed {
namespace {

// A range begins at a multiple of so many elements of its parameter, so that vector code finds
// whole vectors.
constexpr int64_t kShardAlign = 16;
// Parameters of fewer bytes are sent together, because each message takes time of its own.
constexpr int64_t kAlone = 1 << 20;

Tensor flat(const Tensor& x) { return x.view({x.numel()}); }

// An entry of a state: what it is, and for which parameter. Entries of no parameter have no name.
std::pair<std::string, std::string> parts_of(const std::string& entry) {
  const size_t slash = entry.find('/');
  if (slash == std::string::npos) return {entry, ""};
  return {entry.substr(0, slash), entry.substr(slash + 1)};
}

}  // namespace

bool ShardedOptimizer::Parameter::is_split() const {
  int owners = 0;
  for (size_t r = 0; r + 1 < bounds.size(); ++r) owners += bounds[r + 1] > bounds[r] ? 1 : 0;
  return owners > 1;
}

int ShardedOptimizer::Parameter::owner() const {
  for (size_t r = 0; r + 1 < bounds.size(); ++r)
    if (bounds[r + 1] > bounds[r]) return static_cast<int>(r);
  return 0;  // nobody owns elements of an empty parameter
}

ShardedOptimizer::ShardedOptimizer(CommunicatorPtr communicator,
                                   const std::vector<ParameterGroup>& groups, const Make& make)
    : communicator_(std::move(communicator)), inner_(make({})) {
  NamedVariables all;
  for (const ParameterGroup& group : groups)
    for (const auto& [name, variable] : group.parameters) {
      parameter_of_.add("sharded_optimizer", name, variable);
      FRUGAL_CHECK(numbers_.emplace(name, parameters_.size()).second,
                   "[sharded_optimizer] expected one parameter '{}', got two", name);
      FRUGAL_CHECK(variable.value().is_contiguous(),
                   "[sharded_optimizer] expected a contiguous '{}', got strides {}", name,
                   variable.value().strides());
      parameters_.push_back({name, variable, {}, {}, {}, false});
      all.emplace_back(name, variable);
    }
  check_same_parameters(*communicator_, all);
  if (inner_->elementwise())
    share_ranges();
  else
    share_wholes();
  std::vector<ParameterGroup> mine;
  const auto rank = static_cast<size_t>(communicator_->rank());
  size_t i = 0;
  for (const ParameterGroup& group : groups) {
    ParameterGroup& part = mine.emplace_back();
    part.lr_scale = group.lr_scale;
    part.weight_decay = group.weight_decay;
    for (size_t k = 0; k < group.parameters.size(); ++k, ++i) {
      Parameter& p = parameters_[i];
      p.range = {p.bounds[rank], p.bounds[rank + 1]};
      const bool empty = p.whole.value().numel() == 0 && p.owner() == communicator_->rank();
      if (p.range.size() == 0 && !empty) continue;
      const Tensor& value = p.whole.value();
      p.mine = Variable::parameter(p.is_split() ? flat(value).slice(0, p.range.begin, p.range.end)
                                                : value);
      part.parameters.emplace_back(p.name, p.mine);
    }
  }
  inner_ = make(mine);
}

// Rank r ends where r + 1 of `size` equal parts of all bytes end.
void ShardedOptimizer::share_ranges() {
  int64_t all = 0, before = 0;
  for (const Parameter& p : parameters_) all += p.whole.value().nbytes();
  const int ranks = communicator_->size();
  for (Parameter& p : parameters_) {
    const Tensor& value = p.whole.value();
    const auto size = static_cast<int64_t>(size_of(value.dtype()));
    p.bounds.push_back(0);
    for (int r = 1; r < ranks; ++r) {
      const int64_t elements = (all / ranks * r + all % ranks * r / ranks - before) / size;
      p.bounds.push_back(
          std::clamp<int64_t>(elements / kShardAlign * kShardAlign, 0, value.numel()));
    }
    p.bounds.push_back(value.numel());
    before += value.nbytes();
  }
}

void ShardedOptimizer::share_wholes() {
  std::vector<size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto bytes = [&](size_t i) { return parameters_[i].whole.value().nbytes(); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes(a) > bytes(b); });
  std::vector<int64_t> loads(static_cast<size_t>(communicator_->size()), 0);
  for (const size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += bytes(i);
    Parameter& p = parameters_[i];
    p.bounds.assign(loads.size() + 1, 0);
    std::fill(p.bounds.begin() + (least - loads.begin()) + 1, p.bounds.end(),
              p.whole.value().numel());
  }
}

// The value of a parameter may be another tensor than at the last step.
void ShardedOptimizer::lend_gradient(Parameter& p) const {
  if (!p.mine.defined()) return;
  const Tensor& value = p.whole.value();
  if (p.mine.value().storage() != value.storage())
    p.mine.set_value(p.is_split() ? flat(value).slice(0, p.range.begin, p.range.end) : value);
  if (!p.given && p.whole.has_grad()) p.mine.set_grad(part_of(p));
}

Tensor ShardedOptimizer::part_of(const Parameter& p) const {
  if (!p.mine.defined()) return {};
  if (p.given) return p.mine.grad();
  if (!p.whole.has_grad()) return {};
  GradAccumulator& leaf = *p.whole.accumulator();
  // A copy would not be what scale_gradients() must write.
  if (!leaf.whole().is_contiguous()) leaf.set(ops::contiguous(leaf.whole()));
  return p.is_split() ? flat(leaf.whole()).slice(0, p.range.begin, p.range.end) : leaf.whole();
}

std::vector<Bounds> ShardedOptimizer::owners(const NamedVariables& parameters) const {
  std::vector<Bounds> all;
  for (const auto& [name, variable] : parameters) all.push_back(bounds(number_of(name)));
  return all;
}

size_t ShardedOptimizer::number_of(const std::string& name) const {
  const auto found = numbers_.find(name);
  FRUGAL_CHECK(found != numbers_.end(),
               "[sharded_optimizer] expected a parameter of the optimizer, got '{}'", name);
  return found->second;
}

void ShardedOptimizer::set_part_gradient(size_t parameter, Tensor part) {
  Parameter& p = parameters_[parameter];
  const int64_t got = part.defined() ? part.numel() : 0;
  FRUGAL_CHECK(
      got == p.range.size() && (got == 0 || part.dtype() == p.whole.dtype()),
      "[sharded_optimizer] expected {} {} as this rank's part of the gradient of '{}', got "
      "{}",
      p.range.size(), name_of(p.whole.dtype()), p.name, part.defined() ? describe(part) : "none");
  p.given = true;
  if (!p.mine.defined()) return;
  const CategoryScope scope(Category::gradient);
  p.mine.set_grad(part.defined()
                      ? part.view(p.mine.shape())
                      : Tensor::empty(p.mine.shape(), p.whole.dtype(), p.whole.device()));
}

void ShardedOptimizer::take_gradients(GradientBuckets& buckets) {
  if (!buckets.has_owners() || communicator_->size() == 1) return;
  const NamedVariables& parameters = buckets.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (buckets.has_gradient(i))
      set_part_gradient(number_of(parameters[i].first), buckets.take_part(i));
}

std::vector<double> ShardedOptimizer::part_squares() const {
  std::vector<double> squares;
  for (const Parameter& p : parameters_) {
    const Tensor part = part_of(p);
    squares.push_back(part.defined() ? ops::sum_of_squares(part) : 0);
  }
  return squares;
}

double ShardedOptimizer::gradient_norm() const {
  const std::vector<double> squares = part_squares();
  return std::sqrt(communicator_->all_reduce(std::accumulate(squares.begin(), squares.end(), 0.0),
                                             Reduction::sum, "the norm of the gradients"));
}

std::vector<double> ShardedOptimizer::gradient_norms() const {
  const CategoryScope scope(Category::workspace);
  const Tensor squares = Tensor::from(part_squares(), {static_cast<int64_t>(parameters_.size())});
  communicator_->all_reduce(squares, Reduction::sum, "the norm of each gradient");
  std::vector<double> norms = squares.to_vector();
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

std::vector<double> ShardedOptimizer::gradient_norms(const NamedVariables& parameters) const {
  const std::vector<double> all = gradient_norms();
  std::vector<double> norms;
  for (const auto& [name, variable] : parameters) norms.push_back(all[number_of(name)]);
  return norms;
}

void ShardedOptimizer::scale_gradients(double factor) const {
  for (const Parameter& p : parameters_)
    if (const Tensor part = part_of(p); part.defined()) ops::scale_inplace(part, factor);
}

double ShardedOptimizer::clip_gradient_norm(double max_norm) const {
  FRUGAL_CHECK(max_norm > 0, "[clip_gradient_norm] expected a norm above 0, got {}", max_norm);
  const double norm = gradient_norm();
  const double factor = ops::clip_factor(norm, max_norm);
  if (factor != 1) scale_gradients(factor);
  return norm;
}

void ShardedOptimizer::clip_gradient_value(double bound) const {
  FRUGAL_CHECK(bound > 0, "[clip_gradient_value] expected a bound above 0, got {}", bound);
  for (const Parameter& p : parameters_)
    if (const Tensor part = part_of(p); part.defined()) ops::clip_inplace(part, bound);
}

void ShardedOptimizer::step(double lr) {
  std::vector<size_t> changed;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    lend_gradient(parameters_[i]);
    if (parameters_[i].whole.has_grad() || parameters_[i].given) changed.push_back(i);
  }
  inner_->step(lr);
  inner_->zero_grad();
  for (Parameter& p : parameters_) p.given = false;
  gather(changed);
}

bool ShardedOptimizer::step_leaf(const GradAccumulator& leaf, double lr) {
  const auto found = parameter_of_.find(leaf);
  if (!found) return false;
  optim::check_rate_of_step(lr);  // on every rank, also where no part of the parameter is
  Parameter& p = parameters_[*found];
  lend_gradient(p);
  if (p.mine.defined()) {
    inner_->step_leaf(*p.mine.accumulator(), lr);
    p.mine.zero_grad();
  }
  gather({*found});
  return true;
}

void ShardedOptimizer::zero_grad() {
  for (Parameter& p : parameters_) {
    p.whole.zero_grad();
    if (p.mine.defined()) p.mine.zero_grad();
    p.given = false;
  }
}

void ShardedOptimizer::gather(const std::vector<size_t>& parameters) const {
  if (communicator_->size() == 1) return;
  std::vector<Pending> pending;
  std::map<std::pair<DType, std::string>, std::vector<size_t>> small;  // by dtype and device
  for (const size_t i : parameters) {
    const Parameter& p = parameters_[i];
    const Tensor& value = p.whole.value();
    if (value.nbytes() >= kAlone)
      pending.push_back(communicator_->begin_all_gather(flat(value), p.bounds, p.name));
    else
      small[{value.dtype(), value.device().str()}].push_back(i);
  }
  // The parts of rank 0 of all of them, then those of rank 1, ...
  for (const auto& [kind, members] : small) {
    Bounds bounds{0};
    for (size_t r = 0; r < static_cast<size_t>(communicator_->size()); ++r) {
      int64_t elements = 0;
      for (const size_t i : members)
        elements += parameters_[i].bounds[r + 1] - parameters_[i].bounds[r];
      bounds.push_back(bounds.back() + elements);
    }
    const CategoryScope scope(Category::workspace);
    const Device device = parameters_[members.front()].whole.device();
    const Tensor together = Tensor::empty({bounds.back()}, kind.first, device);
    const auto copy = [&, &members = members](size_t rank, bool in) {
      int64_t at = bounds[rank];
      for (const size_t i : members) {
        const Parameter& p = parameters_[i];
        const int64_t n = p.bounds[rank + 1] - p.bounds[rank];
        if (n == 0) continue;
        const Tensor there = together.slice(0, at, at + n);
        const Tensor here = flat(p.whole.value()).slice(0, p.bounds[rank], p.bounds[rank + 1]);
        ops::copy_into(in ? there : here, in ? here : there);
        at += n;
      }
    };
    const auto mine = static_cast<size_t>(communicator_->rank());
    copy(mine, true);
    communicator_->all_gather(together, bounds, "small parameters");
    for (size_t r = 0; r + 1 < bounds.size(); ++r)
      if (r != mine) copy(r, false);
    for (const size_t i : members) parameters_[i].whole.value().bump_version();
  }
  for (Pending& each : pending) each.wait();
}

const ShardedOptimizer::Parameter* ShardedOptimizer::find(const std::string& entry) const {
  const std::string name = parts_of(entry).second;
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& p) { return p.name == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

Optimizer::NamedTensors ShardedOptimizer::state() const {
  const NamedTensors mine = inner_->state();
  if (communicator_->size() == 1) return mine;
  // What each rank has: names, dtypes and shapes, one entry a line.
  std::string text;
  for (const auto& [name, tensor] : mine) {
    text += fmt::format("{} {}", static_cast<int>(tensor.dtype()), tensor.dim());
    for (int a = 0; a < tensor.dim(); ++a) text += fmt::format(" {}", tensor.size(a));
    text += " " + name + "\n";
  }
  std::map<std::string, std::vector<std::string>> entries;  // entries of each parameter, in order
  struct Form {
    DType dtype{};
    Shape shape;
    int owner = 0;  // the first rank that has it
  };
  std::map<std::string, Form> forms;
  const std::vector<std::string> texts =
      communicator_->all_gather(text, "the entries of the optimizer's state");
  for (size_t r = 0; r < texts.size(); ++r)
    for (const std::string& line : lines_of(texts[r])) {
      Form form;
      form.owner = static_cast<int>(r);
      size_t at = 0;
      const auto number = [&] {
        const size_t space = line.find(' ', at);
        const int64_t value = std::stoll(line.substr(at, space - at));
        at = space + 1;
        return value;
      };
      form.dtype = static_cast<DType>(number());
      std::vector<int64_t> extents(static_cast<size_t>(number()));
      for (int64_t& extent : extents) extent = number();
      form.shape = Shape(std::span<const int64_t>(extents));
      const std::string name = line.substr(at);
      if (forms.emplace(name, form).second) entries[parts_of(name).second].push_back(name);
    }
  std::map<std::string, Tensor> here(mine.begin(), mine.end());
  const CategoryScope scope(Category::optimizer);
  NamedTensors all;
  const auto add = [&](const std::string& name, const Parameter* p) {
    const Form& form = forms.at(name);
    const auto found = here.find(name);
    if (p == nullptr || !p->is_split() || form.shape.dim() == 0) {  // one rank's is everybody's
      const bool is_mine = communicator_->rank() == form.owner;
      const Device device = p == nullptr || form.shape.dim() == 0 ? kCpu : p->whole.device();
      const Tensor tensor = is_mine ? found->second : Tensor::empty(form.shape, form.dtype, device);
      communicator_->broadcast(tensor, form.owner, name);
      all.emplace_back(name, tensor);
      return;
    }
    const Tensor& value = p->whole.value();
    const Tensor tensor = Tensor::empty(value.shape(), form.dtype, value.device());
    if (found != here.end())
      ops::copy_into(flat(tensor).slice(0, p->range.begin, p->range.end), found->second);
    communicator_->all_gather(flat(tensor), p->bounds, name);
    all.emplace_back(name, tensor);
  };
  for (const Parameter& p : parameters_) {
    for (const std::string& name : entries[p.name]) add(name, &p);
    entries.erase(p.name);
  }
  for (const auto& [name, rest] : entries)
    for (const std::string& entry : rest) add(entry, nullptr);
  return all;
}

void ShardedOptimizer::load_state(const NamedTensors& state) {
  if (communicator_->size() == 1) return inner_->load_state(state);
  NamedTensors mine;
  std::string problem;
  const NamedTensors before = inner_->state();
  try {
    for (const auto& [name, tensor] : state) {
      const Parameter* p = find(name);
      FRUGAL_CHECK(p != nullptr || parts_of(name).second.empty(),
                   "[sharded_optimizer] the state has an unexpected entry '{}'", name);
      if (p == nullptr || (p->mine.defined() && (!p->is_split() || tensor.dim() == 0))) {
        mine.emplace_back(name, tensor);
        continue;
      }
      const Tensor& value = p->whole.value();
      FRUGAL_CHECK(!p->is_split() || tensor.dim() == 0 || tensor.shape() == value.shape(),
                   "[sharded_optimizer] expected '{}' to be {}, got {}", name, value.shape(),
                   describe(tensor));
      if (p->is_split() && p->mine.defined())
        mine.emplace_back(name,
                          flat(ops::contiguous(tensor)).slice(0, p->range.begin, p->range.end));
    }
    inner_->load_state(mine);
  } catch (const Error& error) {
    problem = error.what();
  }
  // A rank whose part is right must not go on with it while another one's is wrong.
  for (const std::string& other : communicator_->all_gather(problem, "what was wrong")) {
    if (other.empty()) continue;
    if (problem.empty()) inner_->load_state(before);
    throw Error(other);
  }
}

}  // namespace frugal::distributed
