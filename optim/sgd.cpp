#include "optim/optimizers.h"

#include <map>
#include <set>

#include "autograd/gradient.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/sgd.h"
#include "optim/option_keys.h"
#include "optim/row_slices.h"
#include "optim/slots.h"

namespace frugal::optim {

std::vector<by_name::Option<SgdOptions>> SgdOptions::list() {
  return {{keys::kMomentum, &SgdOptions::momentum},
          {{"nesterov", by_name::range::flag(), "sgd, sgd_8bit: Nesterov's momentum."},
           &SgdOptions::nesterov}};
}
namespace {
const std::string kMomentumPrefix = "momentum/";
}

Sgd::Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options) : options_(options) {
  FRUGAL_CHECK(options.momentum >= 0 && options.momentum < 1,
               "[sgd] expected a momentum in [0, 1), got {}", options.momentum);
  FRUGAL_CHECK(!options.nesterov || options.momentum > 0,
               "[sgd] expected a momentum above 0 for Nesterov's variant");
  for (ParameterGroup& group : groups) {
    const double decay = group.weight_decay.value_or(options.weight_decay);
    FRUGAL_CHECK(decay >= 0, "[sgd] expected a weight decay of at least 0, got {}", decay);
    for (auto& [name, parameter] : group.parameters) {
      slot_of_.add("sgd", name, parameter);
      slots_.push_back({name, parameter, {}, group.lr_scale, decay});
    }
  }
}

void Sgd::update(const std::vector<Slot*>& slots, double lr) {
  CategoryScope scope(Category::optimizer);
  std::vector<ops::SgdUpdate> updates;
  for (Slot* slot : slots) {
    if (!slot->parameter.has_grad()) continue;
    const Tensor &value = slot->parameter.value(), &velocity = slot->velocity;
    if (options_.momentum != 0 && !velocity.defined())
      slot->velocity = Tensor::zeros(value.shape(), value.dtype(), value.device());
    const ops::SgdStep step{lr * slot->lr_scale, options_.momentum, slot->weight_decay,
                            options_.nesterov};
    if (!has_sparse_grad(slot->parameter)) {
      updates.push_back({value, slot->parameter.grad(), velocity, step});
    } else if (velocity.defined() || slot->weight_decay != 0 || value.device() == kMeta) {
      for_row_slices(slot->parameter, [&](int64_t begin, int64_t end, const Tensor& gradient) {
        ops::sgd_steps({{value.slice(0, begin, end), gradient,
                         velocity.defined() ? velocity.slice(0, begin, end) : velocity, step}});
      });
    } else {  // rows without a gradient stay as they are
      const ops::SparseRows& sparse = slot->parameter.accumulator()->sparse();
      for (int64_t i = 0; i < sparse.ids.numel(); ++i) {
        const int64_t row = sparse.ids.data<int64_t>()[i];
        updates.push_back({value.slice(0, row, row + 1), sparse.rows.slice(0, i, i + 1), {}, step});
      }
    }
  }
  ops::sgd_steps(updates);
}

void Sgd::step(double lr) {
  check_rate_of_step(lr);
  std::vector<Slot*> all;
  for (Slot& slot : slots_) all.push_back(&slot);
  update(all, lr);
}

void Sgd::zero_grad() {
  for (Slot& slot : slots_) slot.parameter.zero_grad();
}

bool Sgd::step_leaf(const GradAccumulator& leaf, double lr) {
  const auto found = slot_of_.find(leaf);
  if (!found) return false;
  update({&slots_[*found]}, lr);
  return true;
}

std::unique_ptr<Optimizer> Sgd::without_state() const {
  auto copy = std::make_unique<Sgd>(*this);
  for (Slot& slot : copy->slots_) slot.velocity = {};
  return copy;
}

Optimizer::NamedTensors Sgd::state() const {
  check_names();
  NamedTensors state;
  for (const Slot& slot : slots_)
    if (slot.velocity.defined()) state.emplace_back(kMomentumPrefix + slot.name, slot.velocity);
  return state;
}

void Sgd::check_names() const {
  std::set<std::string> names;
  for (const Slot& slot : slots_)
    FRUGAL_CHECK(names.insert(slot.name).second,
                 "[sgd] expected one parameter '{}', got two: a state holds tensors by name",
                 slot.name);
}

void Sgd::load_state(const NamedTensors& state) {
  check_names();
  std::map<std::string, Slot*> slots;
  for (Slot& slot : slots_) slots[kMomentumPrefix + slot.name] = &slot;
  for (const auto& [name, tensor] : state) {
    const auto found = slots.find(name);
    FRUGAL_CHECK(found != slots.end(), "[sgd] the state has an unexpected entry '{}'", name);
    const Tensor& value = found->second->parameter.value();
    FRUGAL_CHECK(tensor.shape() == value.shape() && tensor.dtype() == value.dtype(),
                 "[sgd] expected '{}' to be {}, got {}", name, describe(value), describe(tensor));
  }
  CategoryScope scope(Category::optimizer);
  for (Slot& slot : slots_) slot.velocity = Tensor();
  for (const auto& [name, tensor] : state)
    slots[name]->velocity = to_device(ops::clone(tensor), slots[name]->parameter.device());
}

std::vector<ParameterGroup> decay_groups(
    const std::vector<std::pair<std::string, Variable>>& parameters, double weight_decay,
    bool decay_one_dimensional) {
  ParameterGroup decayed, plain;
  decayed.weight_decay = weight_decay;
  plain.weight_decay = 0;
  for (const auto& entry : parameters) {
    const bool decays = decay_one_dimensional || !is_one_dimensional(entry.second);
    (decays ? decayed : plain).parameters.push_back(entry);
  }
  return {decayed, plain};
}

}  // namespace frugal::optim
