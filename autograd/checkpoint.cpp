#include "autograd/checkpoint.h"

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/timeline.h"

namespace frugal {
namespace {

thread_local int recomputations = 0;

// Sets `rng` to `state`, and restores it in the destructor.
class RngAgain {
 public:
  RngAgain(Rng* rng, RngKey state) : rng_(rng) {
    if (rng_ == nullptr) return;
    resume_ = rng_->state();
    rng_->restore(state);
  }
  ~RngAgain() {
    if (rng_ != nullptr) rng_->restore(resume_);
  }
  RngAgain(const RngAgain&) = delete;
  RngAgain& operator=(const RngAgain&) = delete;

 private:
  Rng* rng_;
  RngKey resume_{};
};

}  // namespace

RecomputeScope::RecomputeScope() { ++recomputations; }
RecomputeScope::~RecomputeScope() { --recomputations; }
bool recomputing() { return recomputations > 0; }

Variable checkpoint(const std::function<Variable(Variables)>& f, const Variables& inputs,
                    Rng* rng) {
  if (!grad_enabled()) return f(inputs);
  const RngKey start = rng != nullptr ? rng->state() : RngKey{};
  const int layer = active_timeline() != nullptr ? active_timeline()->layer() : 0;
  Tensor output;
  bool wanted = false;  // does anything in f need a gradient, or an input?
  {
    const GradientProbe probe;
    NoGrad no_grad;
    const Variable y = f(inputs);
    output = y.value();
    wanted = probe.found() || y.requires_grad();
  }
  for (const Variable& x : inputs) wanted = wanted || (x.defined() && x.requires_grad());
  if (!wanted) return Variable(std::move(output));
  // f is not linear in its inputs. Batch statistics, relus and attention that are computed again
  // from rounded inputs differ. A policy must ask for that.
  SavePolicy* const policy = policy_of_recomputations();
  std::vector<Save> saves;
  for (const Variable& x : inputs) {
    saves.push_back(save(x));
    saves.back().lossless = policy == nullptr;
  }

  auto backward_fn = [f, rng, start, policy, layer,
                      n = static_cast<int>(inputs.size())](const Backward& b) {
    std::vector<std::shared_ptr<GradAccumulator>> gradients;
    Variable y;
    {
      PolicyScope scope(policy, PolicyScope::SameStep{});
      Variables leaves;
      for (int i = 0; i < n; ++i) {
        leaves.push_back(b.keeps(i) ? Variable(b.saved(i), b.needs(i)) : Variable());
        gradients.push_back(b.keeps(i) ? leaves.back().accumulator() : nullptr);
        // An input that is rounded twice would have twice the noise.
        if (policy != nullptr && b.keeps(i)) share_codes(b.slot(i), leaves.back().value());
      }
      CategoryScope category(Category::activation);
      RecomputeScope recompute;
      EnableGrad grad;
      RngAgain rebuild(rng, start);
      if (Timeline* const timeline = active_timeline()) timeline->set_layer(layer);
      y = f(std::move(leaves));
    }
    if (y.producer() != nullptr)
      backward(y, b.take_dy());
    else if (y.accumulator() != nullptr)
      y.accumulator()->add(b.take_dy());  // f gave back an input, or a parameter
    Grads grads;
    for (const auto& gradient : gradients)
      grads.emplace_back(gradient != nullptr ? gradient->whole() : Tensor());
    return grads;
  };
  auto node = make_node("checkpoint", inputs, output, saves, std::move(backward_fn), {});
  node->hides_leaves = true;
  return make_output(std::move(output), std::move(node));
}

}  // namespace frugal
