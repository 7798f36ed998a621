#include "train/captured_step.h"

#include <cmath>
#include <utility>

#include "core/cuda/cuda_graph.h"
#include "core/cuda/cuda_late.h"
#include "core/log.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/clip.h"
#include "optim/clip.h"
#include "optim/row_slices.h"

namespace frugal::train {
namespace {

// Calls f(name, tensor) for each tensor of a batch.
template <class F>
void for_tensors(Batch& batch, const F& f) {
  f("input", batch.input);
  if (batch.target.defined()) f("target", batch.target);
  for (auto& [name, tensor] : batch.extras) f(name, tensor);
}

// Does each step have a graph of its own?
bool is_sampled(const Batch& batch) {
  return !batch.held && find_tensor(batch.extras, "edge_index").defined();
}

// The key of a captured step, which serves all batches of equal shapes, or one batch that is held.
std::string key_of(Batch& batch, const StepUpdate* update) {
  std::string text;
  if (update != nullptr) text += fmt::format("update {} {};", update->norm, update->clip_norm);
  for_tensors(batch, [&](std::string_view name, const Tensor& x) {
    text += name;
    text += describe(x);
    if (batch.held)
      text += fmt::format(" {} {} {};", x.storage()->id(), x.storage()->version(), x.offset());
  });
  return text;
}

void copy_batch(Batch& to, const Batch& from) {
  if (to.held) return;  // both have the same tensors
  ops::copy_into(to.input, from.input);
  if (to.target.defined()) ops::copy_into(to.target, from.target);
  for (size_t i = 0; i < to.extras.size(); ++i)
    ops::copy_into(to.extras[i].second, from.extras[i].second);
}

// The counters that a forward pass increments on the host.
std::vector<Tensor> counters_of(Module& model) {
  std::vector<Tensor> counters;
  for (const auto& b : model.buffers())
    if (b.buffer->dtype() == DType::i64 && b.buffer->device() == kCpu && b.buffer->numel() == 1)
      counters.push_back(*b.buffer);
  return counters;
}

std::vector<Variable> parameters_of(Module& model) {
  std::vector<Variable> parameters;
  for (const auto& p : model.parameters()) parameters.push_back(*p.parameter);
  return parameters;
}

}  // namespace

struct CapturedStep::Entry {
  int64_t seen = 0;
  cuda::Graph graph;
  Batch batch;  // what the captured work reads
  ForwardPass pass;
  BatchResult memory;  // the bytes that the captured step kept
  Tensor one_target;   // stands for the targets of a pass that names none; it counts
  std::vector<Tensor> grads;
  RngKey first;         // the key that the captured step drew first
  uint64_t keys = 0;    // how many keys it drew
  uint64_t number = 0;  // the number of the captured step
  std::vector<int64_t> counts;
  cuda::LateArguments late;  // what the update is sent anew
  Tensor norm;               // undefined where no norm is measured
};

CapturedStep::CapturedStep(const Task& task, Module& model, SavePolicy* policy)
    : task_(task), model_(model), policy_(policy) {}
CapturedStep::~CapturedStep() = default;

void CapturedStep::forget() { entries_.clear(); }

CapturedResult CapturedStep::run(Batch batch, Context& context, const PassOptions& options,
                                 uint64_t number, const StepUpdate* update) {
  if (!obstacle_.empty() || is_sampled(batch))
    return {forward_backward(task_, model_, std::move(batch), context, policy_, options)};
  if (update != nullptr && !update->optimizer.capturable()) update = nullptr;
  batch = task_.place(std::move(batch), model_);
  std::unique_ptr<Entry>& entry = entries_[key_of(batch, update)];
  if (entry == nullptr) entry = std::make_unique<Entry>();
  if (entry->seen++ == 0)
    return {forward_backward(task_, model_, std::move(batch), context, policy_, options)};
  if (!entry->graph.captured()) {
    const RngKey before = context.rng->state();
    std::vector<int64_t> counts;
    for (const Tensor& c : counters_of(model_)) counts.push_back(*c.data<int64_t>());
    try {
      capture(*entry, batch, context, options, number, update);
    } catch (const Error& e) {
      obstacle_ = e.what();
      log().warn("steps are not captured: {}", obstacle_);
      entries_.clear();
      context.rng->restore(before);
      model_.zero_grad();
      const std::vector<Tensor> counters = counters_of(model_);
      for (size_t i = 0; i < counters.size(); ++i) *counters[i].mut<int64_t>() = counts[i];
      begin_step(number);
      return {forward_backward(task_, model_, std::move(batch), context, policy_, options)};
    }
    // The capture ran no kernels, so its random keys and its counts are those of this step.
    context.rng->restore(before);
    const std::vector<Tensor> counters = counters_of(model_);
    for (size_t i = 0; i < counters.size(); ++i) {
      int64_t& count = *counters[i].mut<int64_t>();
      entry->counts.push_back(count - counts[i]);
      count = counts[i];
    }
  }
  return rerun(*entry, batch, context, number, update);
}

void CapturedStep::capture_passes(Entry& entry, Context& context, const PassOptions& options) {
  const CategoryScope activations(Category::activation);
  {
    PolicyScope policy(policy_);
    Batch taken = entry.batch;
    entry.pass =
        forward_pass(task_, model_, taken, context, {.label_smoothing = options.label_smoothing});
  }
  measure_saved(model_.device(), entry.memory.memory);
  // The loss is read after each rerun, so its value stays. Its graph does not.
  const Tensor value = entry.pass.loss.value();
  backward(std::exchange(entry.pass.loss, Variable(value)));
  for (const auto& p : model_.parameters()) {
    // A sparse gradient would have other rows at each rerun. On CUDA there are no sparse
    // gradients.
    FRUGAL_ASSERT(!p.parameter->has_grad() || !optim::has_sparse_grad(*p.parameter));
    entry.grads.push_back(p.parameter->grad());
  }
}

void CapturedStep::capture(Entry& entry, Batch batch, Context& context, const PassOptions& options,
                           uint64_t number, const StepUpdate* update) {
  const CategoryScope scope(Category::input);
  entry.batch = batch;
  if (!batch.held) for_tensors(entry.batch, [](std::string_view, Tensor& x) { x = ops::clone(x); });
  entry.one_target = Tensor::zeros({1}, DType::i64, model_.device());
  entry.first = context.rng->state();
  entry.number = number;
  const auto step = [&] { update->optimizer.step(update->lr); };
  Optimizer::NamedTensors before;
  if (update != nullptr) before = update->optimizer.state();
  bool stepped = false;
  try {
    entry.graph.capture([&] {
      capture_passes(entry, context, options);
      if (update == nullptr) return;
      if (update->norm || update->clip_norm > 0)
        entry.norm = optim::clip_grad_norm_there(parameters_of(model_), update->clip_norm);
      const Tensor& target = entry.pass.target.defined() ? entry.pass.target : entry.one_target;
      const Tensor guard = ops::may_step(entry.pass.loss.value(), target, kIgnored, entry.norm);
      stepped = true;
      entry.late.capture(guard, step);
      // An optimizer that makes state in a captured step would make it again in each rerun.
      FRUGAL_CHECK(update->optimizer.state().size() == before.size(),
                   "[cuda] expected an optimizer that has its state before a step is captured");
    });
    if (stepped) {
      // The capture only counted the step and updated nothing, so the count is taken back. renew()
      // fails here if the step cannot be renewed.
      update->optimizer.take_back();
      entry.late.renew(step);
      update->optimizer.take_back();
    }
  } catch (...) {
    if (stepped) update->optimizer.load_state(before);
    throw;
  }
  allocator(model_.device()).trim();  // gives back what steps took that were run
  entry.keys = context.rng->state().offset - entry.first.offset;
}

CapturedResult CapturedStep::rerun(Entry& entry, const Batch& batch, Context& context,
                                   uint64_t number, const StepUpdate* update) {
  copy_batch(entry.batch, batch);
  const auto parameters = model_.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (entry.grads[i].defined())
      parameters[i].parameter->set_grad(entry.grads[i]);
    else
      parameters[i].parameter->zero_grad();
  if (update != nullptr) entry.late.renew([&] { update->optimizer.step(update->lr); });
  const RngKey now = context.rng->state();
  entry.graph.rerun(now.offset - entry.first.offset, number - entry.number);
  ++reruns_;
  context.rng->restore({now.seed, now.offset + entry.keys});
  const std::vector<Tensor> counters = counters_of(model_);
  for (size_t i = 0; i < counters.size(); ++i) {
    *counters[i].mut<int64_t>() += entry.counts[i];
    counters[i].bump_version();
  }
  CapturedResult result;
  result.batch = read(task_, entry.pass, update != nullptr ? entry.norm : Tensor(), &result.norm);
  result.batch.memory = entry.memory.memory;
  if (update == nullptr) return result;
  result.updated = true;
  if (!std::isfinite(result.batch.loss) || !std::isfinite(result.norm))
    update->optimizer.take_back();
  return result;
}

}  // namespace frugal::train
