#include "optim/averaged.h"

#include <algorithm>

#include "ops/dense/copy.h"
#include "ops/optimizer/adam.h"
#include "optim/given_state.h"

namespace frugal::optim {
namespace {
const std::string kAveragePrefix = "ema/";
const std::string kUpdates = "ema_updates";
}  // namespace

Ema::Ema(std::vector<std::pair<std::string, Variable>> parameters, const EmaOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  FRUGAL_CHECK(options.decay >= 0 && options.decay < 1, "[ema] expected a decay in [0, 1), got {}",
               options.decay);
  const CategoryScope scope(Category::optimizer);
  for (const auto& entry : parameters_) averages_.push_back(ops::clone(entry.second.value()));
}

void Ema::update() {
  FRUGAL_CHECK(!swapped_, "[ema] expected no update while the averages are swapped in");
  const auto t = static_cast<double>(updates_);
  const double decay =
      options_.warm_up ? std::min(options_.decay, (1 + t) / (10 + t)) : options_.decay;
  std::vector<ops::Average> all;
  for (size_t i = 0; i < averages_.size(); ++i)
    all.push_back({averages_[i], parameters_[i].second.value()});
  ops::average_into(all, 1 - decay);
  ++updates_;
}

Ema::NamedTensors Ema::state() const {
  const CategoryScope scope(Category::optimizer);
  NamedTensors state{{kUpdates, Tensor::from<int64_t>({updates_}, {})}};
  for (size_t i = 0; i < averages_.size(); ++i)
    state.emplace_back(kAveragePrefix + parameters_[i].first, averages_[i]);
  return state;
}

void Ema::load_state(const NamedTensors& state) {
  FRUGAL_CHECK(!swapped_, "[ema] expected no loading while the averages are swapped in");
  GivenState given("ema", state);
  const CategoryScope scope(Category::optimizer);
  const auto updates = static_cast<int64_t>(given.take(kUpdates, {}, DType::i64).item());
  FRUGAL_CHECK(updates >= 0, "[ema] expected '{}' of at least 0, got {}", kUpdates, updates);
  std::vector<Tensor> averages;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor& value = parameter.value();
    const Tensor given_average = given.take(kAveragePrefix + name, value.shape(), value.dtype());
    averages.push_back(to_device(ops::clone(given_average), value.device()));
  }
  given.check_all_taken();
  averages_ = std::move(averages);
  updates_ = updates;
}

Ema::Swap::Swap(Ema& ema) : ema_(ema) {
  FRUGAL_CHECK(!ema.swapped_, "[ema] expected one swap at a time");
  values_.reserve(ema.averages_.size());
  ema.swapped_ = true;
  for (size_t i = 0; i < ema.averages_.size(); ++i) {
    values_.push_back(ema.parameters_[i].second.value());
    ema.parameters_[i].second.set_value(ema.averages_[i]);
  }
}

Ema::Swap::~Swap() {
  // Backwards, so that a variable with two names gets its own value back.
  for (size_t i = values_.size(); i-- > 0;)
    ema_.parameters_[i].second.set_value(std::move(values_[i]));
  ema_.swapped_ = false;
}

}  // namespace frugal::optim
