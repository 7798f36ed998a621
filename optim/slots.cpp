#include "optim/slots.h"

#include <cmath>
#include <set>

#include "ops/dense/copy.h"
#include "optim/given_state.h"

namespace frugal::optim {
namespace {

const std::string kSteps = "steps";

// A number for messages: NaN without a sign.
double shown(double number) { return std::isnan(number) ? std::abs(number) : number; }

}  // namespace

void check_rate_of_step(double lr) {
  FRUGAL_CHECK(std::isfinite(lr) && lr >= 0, "[optimizer] expected a rate of at least 0, got {}",
               shown(lr));
}

SlotOptimizer::SlotOptimizer(const char* op, const std::vector<ParameterGroup>& groups,
                             double weight_decay)
    : op_(op) {
  std::set<std::string> names;
  for (const ParameterGroup& group : groups) {
    const double decay = group.weight_decay.value_or(weight_decay);
    FRUGAL_CHECK(std::isfinite(decay) && decay >= 0,
                 "[{}] expected a weight decay of at least 0, got {}", op, shown(decay));
    FRUGAL_CHECK(std::isfinite(group.lr_scale) && group.lr_scale >= 0,
                 "[{}] expected an lr_scale of at least 0, got {}", op, shown(group.lr_scale));
    for (const auto& [name, parameter] : group.parameters) {
      FRUGAL_CHECK(names.insert(name).second, "[{}] expected one parameter '{}', got two", op,
                   name);
      slot_of_.add(op, name, parameter);
      slots_.push_back({name, parameter, group.lr_scale, decay, 0, {}});
    }
  }
}

void SlotOptimizer::update_slots(const std::vector<Slot*>& slots, double lr) {
  check_rate_of_step(lr);
  const CategoryScope scope(Category::optimizer);
  std::vector<Update> updates;
  for (Slot* slot : slots) {
    if (!slot->parameter.has_grad()) continue;
    if (slot->parts.empty() && needs_parts()) {
      std::vector<Tensor> parts;
      for (const Part& part : parts_of(*slot))
        parts.push_back(Tensor::zeros(part.shape, part.dtype, slot->parameter.device()));
      slot->parts = std::move(parts);  // a slot gets all its parts, or none if memory ran out
    }
    updates.push_back({slot, lr * slot->lr_scale});
  }
  // Nothing has failed up to here, so these slots count as updated.
  for (Slot* slot : slots)
    if (slot->parameter.has_grad()) ++slot->steps;
  if (!updates.empty()) update(updates);
}

void SlotOptimizer::step(double lr) {
  std::vector<Slot*> all;
  for (Slot& slot : slots_) all.push_back(&slot);
  update_slots(all, lr);
}

void SlotOptimizer::take_back() {
  for (Slot& slot : slots_)
    if (slot.parameter.has_grad()) --slot.steps;
}

void SlotOptimizer::forget() {
  for (Slot& slot : slots_) {
    slot.steps = 0;
    slot.parts.clear();
  }
}

void SlotOptimizer::zero_grad() {
  for (Slot& slot : slots_) slot.parameter.zero_grad();
}

bool SlotOptimizer::step_leaf(const GradAccumulator& leaf, double lr) {
  const auto found = slot_of_.find(leaf);
  if (!found) return false;
  update_slots({&slots_[*found]}, lr);
  return true;
}

Optimizer::NamedTensors SlotOptimizer::state() const {
  const CategoryScope scope(Category::optimizer);
  NamedTensors state;
  for (const Slot& slot : slots_) {
    if (counts_steps() ? slot.steps == 0 : slot.parts.empty()) continue;
    if (counts_steps())
      state.emplace_back(kSteps + "/" + slot.name, Tensor::from<int64_t>({slot.steps}, {}));
    const std::vector<Part> parts = parts_of(slot);
    for (size_t i = 0; i < parts.size(); ++i)
      state.emplace_back(parts[i].name + "/" + slot.name, slot.parts[i]);
  }
  return state;
}

void SlotOptimizer::load_state(const NamedTensors& state) {
  GivenState given(op_, state);
  const CategoryScope scope(Category::optimizer);
  std::vector<std::pair<int64_t, std::vector<Tensor>>> loaded(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s) {
    const std::string& name = slots_[s].name;
    const std::vector<Part> wanted = parts_of(slots_[s]);
    const std::string& first = counts_steps() ? kSteps : wanted.front().name;
    if (!given.has(first + "/" + name)) continue;
    auto& [steps, parts] = loaded[s];
    if (counts_steps()) {
      steps = static_cast<int64_t>(given.take(kSteps + "/" + name, {}, DType::i64).item());
      FRUGAL_CHECK(steps >= 1, "[{}] expected 'steps/{}' of at least 1, got {}", op_, name, steps);
    }
    for (const Part& part : wanted)
      parts.push_back(
          to_device(ops::clone(given.take(part.name + "/" + name, part.shape, part.dtype)),
                    slots_[s].parameter.device()));
  }
  given.check_all_taken();
  for (size_t s = 0; s < slots_.size(); ++s) {
    slots_[s].steps = loaded[s].first;
    slots_[s].parts = std::move(loaded[s].second);
  }
}

}  // namespace frugal::optim
