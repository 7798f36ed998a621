#include "apps/captured_step.h"

#include <utility>

#include "apps/place_batch.h"
#include "core/cuda_graph.h"
#include "core/log.h"
#include "ops/copy.h"

namespace frugal::apps {
namespace {

std::string shapes_of(const Batch& batch) {
  std::string text = describe(batch.input) + describe(batch.target);
  for (const auto& [name, tensor] : batch.extras) text += name + describe(tensor);
  return text;
}

void copy_batch(const Batch& to, const Batch& from) {
  ops::copy_into(to.input, from.input);
  ops::copy_into(to.target, from.target);
  for (size_t i = 0; i < to.extras.size(); ++i)
    ops::copy_into(to.extras[i].second, from.extras[i].second);
}

// What the host counts in a forward pass.
std::vector<Tensor> counters_of(Module& model) {
  std::vector<Tensor> counters;
  for (const auto& b : model.buffers())
    if (b.buffer->dtype() == DType::i64 && b.buffer->device() == kCpu && b.buffer->numel() == 1)
      counters.push_back(*b.buffer);
  return counters;
}

}  // namespace

struct CapturedStep::Entry {
  int64_t seen = 0;
  cuda::Graph graph;
  Batch batch;  // what the recorded work reads
  ForwardPass pass;
  BatchResult memory;  // of the recorded step
  std::vector<Tensor> grads;
  RngKey first;         // the key that the recorded step drew first
  uint64_t keys = 0;    // how many it drew
  uint64_t number = 0;  // of the recorded step
  std::vector<int64_t> counts;
};

CapturedStep::CapturedStep(Module& model, SavePolicy* policy) : model_(model), policy_(policy) {}
CapturedStep::~CapturedStep() = default;

void CapturedStep::forget() { entries_.clear(); }

BatchResult CapturedStep::run(Batch batch, Context& context, const StepOptions& options,
                              uint64_t number) {
  if (!obstacle_.empty())
    return forward_backward(model_, std::move(batch), context, policy_, options);
  std::unique_ptr<Entry>& entry = entries_[shapes_of(batch)];
  if (entry == nullptr) entry = std::make_unique<Entry>();
  if (entry->seen++ == 0)
    return forward_backward(model_, std::move(batch), context, policy_, options);
  Batch here = placed(batch, model_);
  if (!entry->graph.captured()) {
    const RngKey before = context.rng->state();
    std::vector<int64_t> counts;
    for (const Tensor& c : counters_of(model_)) counts.push_back(*c.data<int64_t>());
    try {
      record(*entry, here, context, options, number);
    } catch (const Error& e) {
      obstacle_ = e.what();
      log().warn("steps are not recorded: {}", obstacle_);
      entries_.clear();
      context.rng->restore(before);
      model_.zero_grad();
      const std::vector<Tensor> counters = counters_of(model_);
      for (size_t i = 0; i < counters.size(); ++i) *counters[i].mut<int64_t>() = counts[i];
      begin_step(number);
      return forward_backward(model_, std::move(batch), context, policy_, options);
    }
    // Recording ran nothing; its keys and counts are those of this step.
    context.rng->restore(before);
    const std::vector<Tensor> counters = counters_of(model_);
    for (size_t i = 0; i < counters.size(); ++i) {
      int64_t& count = *counters[i].mut<int64_t>();
      entry->counts.push_back(count - counts[i]);
      count = counts[i];
    }
  }
  return replay(*entry, here, context, number);
}

void CapturedStep::record(Entry& entry, Batch batch, Context& context, const StepOptions& options,
                          uint64_t number) {
  const Device device = model_.device();
  const CategoryScope scope(Category::input);
  entry.batch = batch;
  entry.batch.input = ops::clone(batch.input);
  entry.batch.target = ops::clone(batch.target);
  for (auto& [name, tensor] : entry.batch.extras) tensor = ops::clone(tensor);
  entry.first = context.rng->state();
  entry.number = number;
  const CategoryScope activations(Category::activation);
  entry.graph.capture([&] {
    CrossEntropyOptions loss_options;
    loss_options.label_smoothing = options.label_smoothing;
    {
      PolicyScope policy(policy_);
      Batch taken = entry.batch;
      entry.pass = forward_pass(model_, taken, context, loss_options);
    }
    entry.pass.output = {};
    measure_saved(device, entry.memory.memory);
    // What is read after each replay stays, without its graph.
    const Tensor value = entry.pass.loss.value();
    backward(std::exchange(entry.pass.loss, Variable(value)));
  });
  allocator(device).trim();  // what steps that are run took
  entry.keys = context.rng->state().offset - entry.first.offset;
  for (const auto& p : model_.parameters()) entry.grads.push_back(p.parameter->grad());
}

BatchResult CapturedStep::replay(Entry& entry, const Batch& batch, Context& context,
                                 uint64_t number) {
  copy_batch(entry.batch, batch);
  const RngKey now = context.rng->state();
  entry.graph.replay(now.offset - entry.first.offset, number - entry.number);
  ++replays_;
  context.rng->restore({now.seed, now.offset + entry.keys});
  const std::vector<Tensor> counters = counters_of(model_);
  for (size_t i = 0; i < counters.size(); ++i) {
    *counters[i].mut<int64_t>() += entry.counts[i];
    counters[i].bump_version();
  }
  const auto parameters = model_.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].parameter->set_grad(entry.grads[i]);
  BatchResult result = read(entry.pass);
  result.memory = entry.memory.memory;
  return result;
}

}  // namespace frugal::apps
