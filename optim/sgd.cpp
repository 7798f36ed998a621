#include "optim/optimizers.h"

#include "autograd/gradient.h"
#include "ops/optimizer/sgd.h"
#include "optim/option_keys.h"
#include "optim/row_slices.h"

namespace frugal::optim {

std::vector<by_name::Option<SgdOptions>> SgdOptions::list() {
  return {{keys::kMomentum, &SgdOptions::momentum},
          {{"nesterov", by_name::range::flag(), "sgd, sgd_8bit: Nesterov's momentum."},
           &SgdOptions::nesterov}};
}

Sgd::Sgd(const std::vector<ParameterGroup>& groups, const SgdOptions& options)
    : SlotOptimizer("sgd", groups, options.weight_decay), options_(options) {
  FRUGAL_CHECK(options.momentum >= 0 && options.momentum < 1,
               "[sgd] expected a momentum in [0, 1), got {}", options.momentum);
  FRUGAL_CHECK(!options.nesterov || options.momentum > 0,
               "[sgd] expected a momentum above 0 for Nesterov's variant");
}

std::vector<SlotOptimizer::Part> Sgd::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  return {{"momentum", value.shape(), value.dtype()}};
}

void Sgd::update(const std::vector<Update>& updates) {
  const Tensor none;
  std::vector<ops::SgdUpdate> all;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const Tensor &value = slot.parameter.value(),
                 &velocity = slot.parts.empty() ? none : slot.parts[0];
    const ops::SgdStep step{u.lr, options_.momentum, slot.weight_decay, options_.nesterov};
    if (!has_sparse_grad(slot.parameter)) {
      all.push_back({value, u.gradient(), velocity, step});
    } else if (velocity.defined() || slot.weight_decay != 0 || value.device() == kMeta) {
      for_row_slices(slot.parameter, [&](int64_t begin, int64_t end, const Tensor& gradient) {
        ops::sgd_steps({{value.slice(0, begin, end), gradient,
                         velocity.defined() ? velocity.slice(0, begin, end) : velocity, step}});
      });
    } else {  // rows without a gradient stay as they are
      const ops::SparseRows& sparse = slot.parameter.accumulator()->sparse();
      for (int64_t i = 0; i < sparse.ids.numel(); ++i) {
        const int64_t row = sparse.ids.data<int64_t>()[i];
        all.push_back({value.slice(0, row, row + 1), sparse.rows.slice(0, i, i + 1), {}, step});
      }
    }
  }
  ops::sgd_steps(all);
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
