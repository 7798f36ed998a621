#include "models/self_supervised/self_supervised.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/checkpoint.h"
#include "autograd/contrastive_functions.h"
#include "autograd/record.h"
#include "models/activations.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/adam.h"

namespace frugal::models {
namespace {

struct Named {
  const char* name;
  SelfSupervision method;
};
constexpr Named kMethods[] = {{"simsiam", SelfSupervision::simsiam},
                              {"byol", SelfSupervision::byol},
                              {"moco_v2", SelfSupervision::moco_v2}};

// Layers in which every hidden one has a norm and a relu behind it, as the method's paper has them.
std::shared_ptr<Sequential> projector_of(Init& init, int64_t features,
                                         const SelfSupervisedOptions& options) {
  auto layers = std::make_shared<Sequential>();
  const bool norms = options.method != SelfSupervision::moco_v2;
  // SimSiam's last layer has a norm, too; BYOL's last layer has no bias. MoCo's layers have one.
  const bool last_norm = options.method == SelfSupervision::simsiam;
  int64_t in = features;
  for (size_t i = 0; i < options.projector.size(); ++i) {
    const bool last = i + 1 == options.projector.size();
    const int64_t out = options.projector[i];
    const bool bias = options.method == SelfSupervision::moco_v2 ||
                      (options.method == SelfSupervision::byol && !last);
    layers->append(std::make_shared<Linear>(init, in, out, bias));
    if (norms && (!last || last_norm)) {
      const auto norm = std::make_shared<BatchNorm2d>(init, out);
      if (last) norm->fix_scale();
      layers->append(norm);
    }
    if (!last) layers->append(std::make_shared<Relu>());
    in = out;
  }
  return layers;
}

std::shared_ptr<Sequential> predictor_of(Init& init, const SelfSupervisedOptions& options) {
  const int64_t width = options.projector.back();
  auto layers = std::make_shared<Sequential>();
  const bool byol = options.method == SelfSupervision::byol;
  layers->append(std::make_shared<Linear>(init, width, options.predictor, byol));
  layers->append(std::make_shared<BatchNorm2d>(init, options.predictor));
  layers->append(std::make_shared<Relu>());
  layers->append(std::make_shared<Linear>(init, options.predictor, width, !byol));
  return layers;
}

// Values of parameters and buffers.
void copy_values(Module& from, Module& to) {
  const auto parameters = from.parameters(), copies = to.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    ops::copy_into(copies[i].parameter->value(), parameters[i].parameter->value());
    copies[i].parameter->set_requires_grad(false);
  }
  const auto buffers = from.buffers(), copied = to.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) ops::copy_into(*copied[i].buffer, *buffers[i].buffer);
}

void add_pairs(std::vector<ops::Average>& pairs, Module& copy, Module& from) {
  const auto copies = copy.parameters(), parameters = from.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    pairs.push_back({copies[i].parameter->value(), parameters[i].parameter->value()});
}

}  // namespace

SelfSupervision self_supervision(const std::string& name) {
  std::string names;
  for (const Named& each : kMethods) {
    if (name == each.name) return each.method;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  throw Error(fmt::format("[self_supervised] expected one of {}, got '{}'", names, name));
}

SelfSupervisedOptions published_options(SelfSupervision method, int64_t features) {
  SelfSupervisedOptions options;
  options.method = method;
  switch (method) {
    case SelfSupervision::simsiam:
      options.projector = {2048, 2048, 2048};
      options.predictor = 512;
      break;
    case SelfSupervision::byol:
      options.projector = {4096, 256};
      options.predictor = 4096;
      options.momentum = 0.996;
      break;
    case SelfSupervision::moco_v2:
      options.projector = {features, 128};
      options.momentum = 0.999;
      options.queue = 65536;
      options.temperature = 0.2;
      break;
  }
  return options;
}

SelfSupervised::SelfSupervised(Init& init, const TrunkMaker& make_trunk, int64_t features,
                               const SelfSupervisedOptions& options)
    : options_(options) {
  constexpr const char* kOp = "self_supervised";
  FRUGAL_CHECK(features >= 1, "[{}] expected a trunk of at least 1 feature, got {}", kOp, features);
  FRUGAL_CHECK(!options.projector.empty(), "[{}] expected a projector of at least one layer", kOp);
  for (const int64_t width : options.projector)
    FRUGAL_CHECK(width >= 1, "[{}] expected a projector of widths of at least 1, got {}", kOp,
                 width);
  const bool contrasts = options.method == SelfSupervision::moco_v2;
  FRUGAL_CHECK(contrasts ? options.predictor == 0 : options.predictor >= 1,
               "[{}] expected a predictor of {} units, got {}", kOp, contrasts ? "0" : "at least 1",
               options.predictor);
  FRUGAL_CHECK(options.momentum >= 0 && options.momentum <= 1,
               "[{}] expected a momentum in [0, 1], got {}", kOp, options.momentum);
  constexpr double kLeast = by_name::range::kLeastDivisor;
  FRUGAL_CHECK(
      !contrasts || (options.queue >= 1 && options.temperature >= kLeast),
      "[{}] expected a queue of at least 1 and a temperature of at least {}, got {} and {}", kOp,
      kLeast, options.queue, options.temperature);
  trunk_ = register_module("trunk", make_trunk(init));
  projector_ = register_module("projector", projector_of(init, features, options_));
  if (options_.predictor > 0)
    predictor_ = register_module("predictor", predictor_of(init, options_));
  if (options_.method == SelfSupervision::simsiam) return;
  target_trunk_ = register_module("target_trunk", make_trunk(init));
  target_projector_ = register_module("target_projector", projector_of(init, features, options_));
  copy_values(*trunk_, *target_trunk_);
  copy_values(*projector_, *target_projector_);
  if (!contrasts) return;
  const Tensor noise = normal(init, {options_.queue, options_.projector.back()}, 1);
  // Ranks put the keys of all of them into it.
  queue_ = &register_buffer("queue", unit_rows(noise), BufferUse::equal);
  next_ = &register_buffer("queue_next", batch_counter(init), BufferUse::equal);
}

Variable SelfSupervised::forward(Variable x, Context& context) {
  return trunk_->forward(std::move(x), context);
}

Variable SelfSupervised::project(Variable x, Context& context) {
  return projector_->forward(trunk_->forward(std::move(x), context), context);
}

Variable SelfSupervised::predict(Variable projection, Context& context) {
  return predictor_->forward(std::move(projection), context);
}

Tensor SelfSupervised::copy_projection(const Tensor& x, const Context& context) {
  const NoGrad no_grad;
  Context own = context;
  own.checkpointed_blocks = 0;          // nothing is kept that could be recomputed
  own.keeps_frozen_statistics = false;  // the copy is not frozen: it follows the network
  return target_projector_->forward(target_trunk_->forward(Variable(x), own), own).value();
}

SelfSupervisedLoss SelfSupervised::loss(Variable first, Variable second, Context& context,
                                        const GatherRows& gather) {
  FRUGAL_CHECK(first.shape() == second.shape(),
               "[self_supervised] expected two views of one shape, got {} and {}", first.shape(),
               second.shape());
  if (options_.method == SelfSupervision::moco_v2) {
    const Tensor keys = unit_rows(copy_projection(second.value(), context));
    second = {};
    const Variable query = project(std::move(first), context);
    InfoNce result = info_nce(query, keys, *queue_, options_.temperature);
    if (context.training && !recomputing()) enqueue(gather ? gather(keys) : keys);
    return {std::move(result.loss), std::move(result.margin)};
  }
  if (options_.method == SelfSupervision::byol) {
    const Tensor of_first = copy_projection(first.value(), context),
                 of_second = copy_projection(second.value(), context);
    const Variable p1 = predict(project(std::move(first), context), context);
    const Variable a = negative_cosine(p1, of_second);
    const Variable p2 = predict(project(std::move(second), context), context);
    const Variable b = negative_cosine(p2, of_first);
    return {add_scalar(scale(add(a, b), 2), 4), {}};
  }
  const Variable z1 = project(std::move(first), context);
  const Variable z2 = project(std::move(second), context);
  const Variable a = negative_cosine(predict(z1, context), z2.value());
  const Variable b = negative_cosine(predict(z2, context), z1.value());
  return {scale(add(a, b), 0.5), {}};
}

// The newest keys take the places of the oldest ones, from row `next` on and around the end.
void SelfSupervised::enqueue(const Tensor& keys) {
  if (next_->raw() == nullptr) return;  // on meta
  const int64_t rows = options_.queue, all = keys.size(0), count = std::min(all, rows);
  int64_t& next = *next_->mut<int64_t>();
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(count - done, rows - next);
    const int64_t from = all - count + done;
    ops::copy_into(queue_->slice(0, next, next + part), keys.slice(0, from, from + part));
    next = (next + part) % rows;
    done += part;
  }
  queue_->bump_version();
  next_->bump_version();
}

void SelfSupervised::follow(double progress) {
  if (!has_copy()) return;
  double momentum = options_.momentum;
  if (options_.method == SelfSupervision::byol)
    momentum = 1 - (1 - momentum) * (std::cos(std::numbers::pi * progress) + 1) / 2;
  std::vector<ops::Average> pairs;
  add_pairs(pairs, *target_trunk_, *trunk_);
  add_pairs(pairs, *target_projector_, *projector_);
  ops::average_into(pairs, 1 - momentum);
}

}  // namespace frugal::models
