#include "train/ranks/gradient_exchange.h"

#include <cmath>

#include "autograd/gradient.h"
#include "distributed/gradient_buckets.h"
#include "distributed/reduce_in_backward.h"
#include "distributed/sharded_optimizer.h"
#include "optim/clip.h"
#include "train/option_error.h"
#include "train/ranks/gradient_codec.h"

namespace frugal::train {

GradientExchange::~GradientExchange() = default;

bool GradientExchange::shares_gradients() const {
  return buckets_ != nullptr && buckets_->has_owners();
}

GradientExchange::GradientExchange(const Ranks& ranks, Module& model, Optimizer& optimizer,
                                   const RanksOptions& options, bool in_backward, uint64_t seed)
    : communicator_(ranks.pointer()),
      options_(options),
      in_backward_(in_backward),
      seed_(seed),
      sharded_(optimizer.sharded()) {
  if (ranks.alone()) return;
  if (options.share_gradients && sharded_ == nullptr)
    throw OptionError("ranks.share_gradients",
                      "expected an optimizer that is sharded beside gradients that are");
  if (in_backward && options.compress_gradients > 0)
    throw OptionError("ranks.compress_gradients",
                      "expected 0 with in_backward, which drops each gradient at once");
  if (in_backward) sums_ = communicator_->channel();
  take_parameters_of(model);
}

void GradientExchange::take_parameters_of(Module& model) {
  if (communicator_->size() == 1) return;
  NamedVariables parameters;
  for (const auto& p : model.parameters())
    if (p.parameter->requires_grad()) parameters.emplace_back(p.name, *p.parameter);
  if (in_backward_) {
    reduced_ = std::make_unique<distributed::ReduceInBackward>(
        sums_, std::move(parameters), [this](GradAccumulator& leaf) { inner_(leaf); },
        options_.buckets.bytes);
    return;
  }
  std::vector<distributed::Bounds> owners;
  if (options_.share_gradients) owners = sharded_->owners(parameters);
  std::shared_ptr<const distributed::WireCodec> codec;
  if (options_.compress_gradients > 0)
    codec = std::make_shared<GradientCodec>(
        GradientCodecOptions{.bits = options_.compress_gradients, .seed = seed_});
  buckets_ = std::make_unique<distributed::GradientBuckets>(
      communicator_, std::move(parameters), options_.buckets, std::move(owners), std::move(codec));
}

LeafFn GradientExchange::leaf_done(LeafFn inner) {
  if (communicator_->size() == 1) return inner;
  if (buckets_ != nullptr) return buckets_->leaf_done();
  inner_ = std::move(inner);
  return reduced_->leaf_done();
}

void GradientExchange::finish() {
  if (communicator_->size() == 1) return;
  if (buckets_ != nullptr) {
    buckets_->finish();
    if (shares_gradients()) sharded_->take_gradients(*buckets_);
  } else {
    reduced_->finish();
    inner_ = {};
  }
  const distributed::GradientBuckets::Step& step =
      buckets_ != nullptr ? buckets_->last() : reduced_->last();
  communication_ += step.communication;
  waiting_ += step.waiting;
  bytes_ += step.bytes;
  sent_bytes_ += step.sent_bytes;
}

void GradientExchange::scale(const std::vector<Variable>& parameters, double factor) {
  if (shares_gradients())
    sharded_->scale_gradients(factor);
  else
    optim::scale_grads(parameters, factor);
}

double GradientExchange::norm(const std::vector<Variable>& parameters, double limit) {
  if (shares_gradients())
    return limit > 0 ? sharded_->clip_gradient_norm(limit) : sharded_->gradient_norm();
  return limit > 0 ? optim::clip_grad_norm(parameters, limit) : optim::grad_norm(parameters);
}

std::vector<std::optional<double>> GradientExchange::norms(
    const std::vector<Variable>& parameters) const {
  std::vector<std::optional<double>> found(parameters.size());
  if (!shares_gradients()) {
    for (size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].has_grad()) found[i] = optim::grad_norm({parameters[i]});
    return found;
  }
  const NamedVariables& known = buckets_->parameters();
  const std::vector<double> all = sharded_->gradient_norms(known);
  for (size_t i = 0; i < parameters.size(); ++i)
    for (size_t k = 0; k < known.size(); ++k)
      if (known[k].second.accumulator() == parameters[i].accumulator() && buckets_->has_gradient(k))
        found[i] = all[k];
  return found;
}

NamedTensors GradientExchange::state() const {
  return buckets_ != nullptr ? buckets_->state() : NamedTensors();
}

void GradientExchange::load_state(const NamedTensors& state) {
  if (buckets_ != nullptr) buckets_->load_state(state);
}

}  // namespace frugal::train
