#include "optim/averaged.h"

namespace frugal::optim {
namespace {

bool is_average(const std::string& name) {
  return name == "ema_updates" || name.rfind("ema/", 0) == 0;
}

}  // namespace

Averaged::Averaged(std::unique_ptr<Optimizer> inner,
                   std::vector<std::pair<std::string, Variable>> parameters,
                   const EmaOptions& options)
    : inner_(std::move(inner)), average_(std::move(parameters), options) {}

Averaged::Averaged(std::unique_ptr<Optimizer> inner, Ema average)
    : inner_(std::move(inner)), average_(std::move(average)) {}

std::unique_ptr<Optimizer> Averaged::without_state() const {
  std::unique_ptr<Optimizer> inner = inner_->without_state();
  if (inner == nullptr) return nullptr;
  return std::unique_ptr<Optimizer>(new Averaged(std::move(inner), average_.anew()));
}

void Averaged::step(double lr) {
  inner_->step(lr);
  average_.update();
}

void Averaged::take_back() {
  inner_->take_back();
  average_.take_back();
}

// The averages are updated in step(), which follows when all leaves are done.
bool Averaged::step_leaf(const GradAccumulator& leaf, double lr) {
  return inner_->step_leaf(leaf, lr);
}

Optimizer::NamedTensors Averaged::with_averages(NamedTensors all) const {
  for (const auto& entry : average_.state()) all.push_back(entry);
  return all;
}

void Averaged::load_state(const NamedTensors& state) {
  NamedTensors own, others;
  for (const auto& entry : state) (is_average(entry.first) ? own : others).push_back(entry);
  const NamedTensors before = inner_->state();
  inner_->load_state(others);
  try {
    average_.load_state(own);
  } catch (...) {
    inner_->load_state(before);
    throw;
  }
}

}  // namespace frugal::optim
