#include "models/layers.h"

#include <cmath>

#include "autograd/transformer_functions.h"
#include "models/activations.h"
#include "models/checkpointed.h"
#include "models/matrix_weight.h"

namespace frugal::models {
namespace {

double bound_of(int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

Tensor conv_weight(Init& init, const Shape& shape, ConvInit kind) {
  const int64_t fan_in = shape[1] * shape[2] * shape[3], fan_out = shape[0] * shape[1] * shape[2];
  switch (kind) {
    case ConvInit::kaiming_fan_in:
      return kaiming_normal(init, shape, fan_in);
    case ConvInit::kaiming_fan_out:
      return kaiming_normal(init, shape, fan_out);
    case ConvInit::pytorch:
      break;
  }
  return uniform(init, shape, bound_of(fan_in));
}

}  // namespace

Conv2d::Conv2d(Init& init, int64_t in, int64_t out, Pair kernel, const Conv2dOptions& options,
               bool bias, ConvInit weights)
    : options_(options) {
  FRUGAL_CHECK(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0,
               "[conv2d] expected groups that divide {} and {} channels, got {}", in, out,
               options.groups);
  const Shape shape{out, kernel[0], kernel[1], in / options.groups};
  weight_ = register_parameter("weight", conv_weight(init, shape, weights), Layout::conv_weight);
  if (bias)
    bias_ = register_parameter(
        "bias", uniform(init, {out}, bound_of(kernel[0] * kernel[1] * in / options.groups)));
}

Variable Conv2d::forward(Variable x, Context&) {
  return conv2d(std::move(x), weight_, bias_, options_);
}

std::shared_ptr<Conv2d> conv_same(Init& init, int64_t in, int64_t out, int64_t kernel,
                                  int64_t stride, ConvInit weights, int64_t groups) {
  Conv2dOptions options;
  options.stride = {stride, stride};
  options.padding = {kernel / 2, kernel / 2};
  options.groups = groups;
  return std::make_shared<Conv2d>(init, in, out, kernel, options, false, weights);
}

bool norms_by_batch(const Context& context, const Variable& weight) {
  return context.training && (weight.requires_grad() || !context.keeps_frozen_statistics);
}

BatchNorm2d::BatchNorm2d(Init& init, int64_t channels, double eps, double momentum)
    : eps_(eps),
      momentum_(momentum),
      weight_(register_parameter("weight", constant(init, {channels}, 1))),
      bias_(register_parameter("bias", constant(init, {channels}, 0))),
      running_mean_(register_buffer("running_mean", constant(init, {channels}, 0))),
      running_var_(register_buffer("running_var", constant(init, {channels}, 1))),
      batches_(register_buffer("num_batches_tracked", batch_counter(init))) {}

void BatchNorm2d::fix_scale() {
  has_fixed_scale_ = true;
  weight_.set_requires_grad(false);
  bias_.set_requires_grad(false);
}

BatchNormOptions BatchNorm2d::prepare(const Context& context) {
  const bool training = has_fixed_scale_ ? context.training : norms_by_batch(context, weight_);
  if (training && !recomputing() && batches_.raw() != nullptr) {
    ++*batches_.mut<int64_t>();
    batches_.bump_version();
  }
  return {training, momentum_, eps_};
}

Variable BatchNorm2d::forward(Variable x, Context& context) {
  return batch_norm(std::move(x), weight_, bias_, stats(), prepare(context));
}

Variable BatchNorm2d::forward_relu(Variable x, Context& context) {
  return batch_norm_relu(std::move(x), weight_, bias_, stats(), prepare(context));
}

Variable BatchNorm2d::forward_add_relu(const Variable& x, Variable residual, Context& context) {
  return batch_norm_add_relu(x, std::move(residual), weight_, bias_, stats(), prepare(context));
}

Variable BatchNorm2d::forward_add_relu(const Conv2d& conv, Variable x, Variable residual,
                                       Context& context) {
  return conv2d_batch_norm_add_relu(conv.call(std::move(x)), std::move(residual), weight_, bias_,
                                    stats(), prepare(context));
}

GroupNorm::GroupNorm(Init& init, int64_t groups, int64_t channels, double eps)
    : groups_(groups),
      eps_(eps),
      weight_(register_parameter("weight", constant(init, {channels}, 1))),
      bias_(register_parameter("bias", constant(init, {channels}, 0))) {
  FRUGAL_CHECK(groups >= 1 && channels % groups == 0,
               "[group_norm] expected groups that divide {} channels, got {}", channels, groups);
}

Variable GroupNorm::forward(Variable x, Context&) {
  return group_norm(x, groups_, weight_, bias_, eps_);
}

Linear::Linear(Init& init, int64_t in, int64_t out, bool bias)
    : LinearLayer(uniform(init, {out, in}, bound_of(in))) {
  if (bias) set_bias(uniform(init, {out}, bound_of(in)));
}

namespace {

using Child = std::shared_ptr<Module>;

template <class M>
M* as(const Child& module) {
  return dynamic_cast<M*>(module.get());
}

// Do the two run as one function?
bool are_fused(const Child& first, const Child& second) {
  if (as<Gelu>(second) != nullptr) {
    const auto* dense = as<Linear>(first);
    return dense != nullptr && dense->adapter() == nullptr;
  }
  if (as<Relu>(second) == nullptr) return false;
  if (const auto* residual = as<Residual>(first)) return residual->ends_in_norm();
  return as<BatchNorm2d>(first) != nullptr;
}

// `second` may be null; else the two are fused.
Variable run_step(const Child& first, const Child& second, Variable x, Context& context) {
  if (second == nullptr) return first->forward(std::move(x), context);
  if (const auto* gelu = as<Gelu>(second)) {
    const auto* dense = as<Linear>(first);
    return linear_gelu(x, dense->matrix(), dense->bias(), gelu->kind());
  }
  if (auto* residual = as<Residual>(first)) return residual->forward_relu(std::move(x), context);
  return as<BatchNorm2d>(first)->forward_relu(std::move(x), context);
}

// The child behind `at` if the two are fused, or null.
Child fused_with(const std::vector<Child>& children, size_t at, size_t end) {
  return at + 1 < end && are_fused(children[at], children[at + 1]) ? children[at + 1] : nullptr;
}

Variable run_all(const std::vector<Child>& children, size_t begin, size_t end, Variable x,
                 Context& context) {
  for (size_t i = begin; i < end; ++i) {
    const Child second = fused_with(children, i, end);
    x = run_step(children[i], second, std::move(x), context);
    if (second != nullptr) ++i;
  }
  return x;
}

// A context in which no layer is checkpointed.
Context without_blocks(const Context& context) {
  Context inner = context;
  inner.checkpointed_blocks = 0;
  return inner;
}

}  // namespace

void Sequential::append_module(std::shared_ptr<Module> module) {
  FRUGAL_CHECK(module != nullptr, "[sequential] expected a module, got a null pointer");
  register_module(std::to_string(modules_.size()), module);
  modules_.push_back(std::move(module));
}

Module& Sequential::operator[](size_t index) const {
  FRUGAL_CHECK(index < size(), "[sequential] expected an index below {}, got {}", size(), index);
  return *modules_[index];
}

void Sequential::set_blocks(std::vector<Block> blocks) {
  size_t last = 0;
  for (const Block& block : blocks) {
    FRUGAL_CHECK(last <= block.begin && block.begin < block.end && block.end <= size(),
                 "[sequential] expected blocks in order within {} children, got one from {} to {}",
                 size(), block.begin, block.end);
    last = block.end;
  }
  blocks_ = std::move(blocks);
}

Variable Sequential::run(Variable x, Context& context, size_t begin, size_t end) const {
  if (context.checkpointed_blocks == 0) return run_all(modules_, begin, end, std::move(x), context);
  Context inner = without_blocks(context);
  return run_all(modules_, begin, end, std::move(x), inner);
}

Variable Sequential::forward(Variable x, Context& context) {
  if (blocks_) {
    size_t at = 0;
    for (const Block& block : *blocks_) {
      x = run(std::move(x), context, at, block.begin);
      const std::vector<Child> children(modules_.begin() + static_cast<ptrdiff_t>(block.begin),
                                        modules_.begin() + static_cast<ptrdiff_t>(block.end));
      x = checkpointed(context, std::move(x), [children](Variable in, Context& around) {
        Context inner = without_blocks(around);
        return run_all(children, 0, children.size(), std::move(in), inner);
      });
      at = block.end;
    }
    return run(std::move(x), context, at, size());
  }
  for (size_t i = 0; i < size(); ++i) {
    const Child module = modules_[i], second = fused_with(modules_, i, size());
    if (second != nullptr) ++i;
    x = checkpointed(context, std::move(x), [module, second](Variable in, Context& inner) {
      return run_step(module, second, std::move(in), inner);
    });
  }
  return x;
}

Residual::Residual(const std::vector<std::shared_ptr<Module>>& branch,
                   std::shared_ptr<Sequential> shortcut)
    : shortcut_(std::move(shortcut)) {
  for (const std::shared_ptr<Module>& module : branch) append_module(module);
  if (shortcut_ != nullptr) register_module("shortcut", shortcut_);
}

bool Residual::ends_in_norm() const {
  return size() >= 2 && dynamic_cast<BatchNorm2d*>(&(*this)[size() - 1]) != nullptr;
}

Variable Residual::around(Variable x, Context& context) const {
  if (shortcut_ == nullptr) return x;
  Context inner = without_blocks(context);
  return shortcut_->forward(std::move(x), inner);
}

Variable Residual::forward(Variable x, Context& context) {
  Variable y = run(x, context, 0, size());
  x = around(std::move(x), context);
  return add(y, x);
}

Variable Residual::forward_relu(Variable x, Context& context) {
  Variable y = run(x, context, 0, size() - 2);
  Variable side = around(std::move(x), context);
  // The layer before the norm comes last, so that it runs first in the backward pass and takes the
  // norm's gradient in slices.
  y = run(std::move(y), context, size() - 2, size() - 1);
  auto& norm = dynamic_cast<BatchNorm2d&>((*this)[size() - 1]);
  return norm.forward_add_relu(y, std::move(side), context);
}

}  // namespace frugal::models
