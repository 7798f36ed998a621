#include "apps/captured_step.h"

#include <utility>

#include "apps/place_batch.h"
#include "core/cuda_graph.h"
#include "core/log.h"
#include "ops/copy.h"
#include "optim/row_slices.h"

namespace frugal::apps {
namespace {

// f(name, tensor) for each of a batch.
template <class F>
void for_tensors(Batch& batch, const F& f) {
  f("input", batch.input);
  f("target", batch.target);
  for (auto& [name, tensor] : batch.extras) f(name, tensor);
}

// Is it a graph of its own at each step?
bool is_sampled(const Batch& batch) {
  return !batch.held && find_tensor(batch.extras, "edge_index").defined();
}

// What one recorded work serves: batches of these shapes, or one batch that is held.
std::string key_of(Batch& batch) {
  std::string text;
  for_tensors(batch, [&](std::string_view name, const Tensor& x) {
    text += name;
    text += describe(x);
    if (batch.held)
      text += fmt::format(" {} {} {};", x.storage()->id(), x.storage()->version(), x.offset());
  });
  return text;
}

void copy_batch(Batch& to, const Batch& from) {
  if (to.held) return;  // the same tensors
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
  if (!obstacle_.empty() || is_sampled(batch))
    return forward_backward(model_, std::move(batch), context, policy_, options);
  batch = placed(std::move(batch), model_);
  std::unique_ptr<Entry>& entry = entries_[key_of(batch)];
  if (entry == nullptr) entry = std::make_unique<Entry>();
  if (entry->seen++ == 0)
    return forward_backward(model_, std::move(batch), context, policy_, options);
  if (!entry->graph.captured()) {
    const RngKey before = context.rng->state();
    std::vector<int64_t> counts;
    for (const Tensor& c : counters_of(model_)) counts.push_back(*c.data<int64_t>());
    try {
      record(*entry, batch, context, options, number);
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
  return replay(*entry, batch, context, number);
}

void CapturedStep::record(Entry& entry, Batch batch, Context& context, const StepOptions& options,
                          uint64_t number) {
  const Device device = model_.device();
  const CategoryScope scope(Category::input);
  entry.batch = batch;
  if (!batch.held) for_tensors(entry.batch, [](std::string_view, Tensor& x) { x = ops::clone(x); });
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
  for (const auto& p : model_.parameters()) {
    // Rows that were asked for are others at each replay; on CUDA there are no such gradients.
    FRUGAL_ASSERT(!p.parameter->has_grad() || !optim::has_sparse_grad(*p.parameter));
    entry.grads.push_back(p.parameter->grad());
  }
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
