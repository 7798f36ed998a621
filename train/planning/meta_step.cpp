#include "train/planning/meta_step.h"

#include <algorithm>
#include <limits>

#include "autograd/checkpoint.h"
#include "autograd/record.h"
#include "ops/dense/copy.h"
#include "ops/kernel_memory.h"
#include "train/evaluate.h"
#include "train/noise/convergence.h"
#include "train/noise/sensitivity.h"
#include "train/policy_parts.h"
#include "train/step.h"
#include "train/step_recorder.h"
#include "train/update_time.h"

namespace frugal::train {
namespace {

// What is alive beside `own`.
CategoryBytes live_beside(Device device, const CategoryBytes& own = {}) {
  CategoryBytes bytes = allocator(device).report().live;
  for (size_t i = 0; i < kCategories; ++i) bytes[i] -= own[i];
  return bytes;
}

// Measures the peak during its lifetime. Bytes that were live before count only up to `own`.
class Peak {
 public:
  Peak(Device device, const CategoryBytes& own)
      : device_(device), foreign_(live_beside(device, own)) {
    begin_peak(device);
  }
  StepMemory end() const {
    StepMemory memory;
    end_peak(device_, memory);
    for (size_t i = 0; i < kCategories; ++i) {
      memory.peak -= foreign_[i];
      memory.at_peak[i] -= foreign_[i];
    }
    return memory;
  }

 private:
  Device device_;
  CategoryBytes foreign_;
};

}  // namespace

UpdateTime update_time(const MetaRun& run, int64_t checkpointed_blocks) {
  const auto& ranks = run.ranks.communicator;
  return {.in_backward = run.in_backward,
          .clip_norm = run.clip_norm,
          .gradient_accumulation = run.gradient_accumulation,
          .recomputes = checkpointed_blocks > 0,
          .ranks = ranks != nullptr ? ranks->size() : 1,
          .on_cuda = run.on_cuda};
}

bool updates_in_backward(const MetaRun& run, int64_t checkpointed_blocks) {
  return keeps_gradients(update_time(run, checkpointed_blocks)).empty();
}

Batch with_extras_on_meta(Batch batch, Memo<TensorIdentity, Tensor>& held) {
  const CategoryScope scope(Category::input);
  for (auto& [name, tensor] : batch.extras)
    if (tensor.defined() && tensor.device() != kMeta)
      tensor = held.find_or_make(TensorIdentity(tensor), [&there = tensor] {
        return Tensor::empty(there.shape(), there.dtype(), kMeta);
      });
  return batch;
}

// Gives a step batches on meta.
class MetaStep::Watch final : public StepObserver {
 public:
  Watch(const MetaStep& meta, SavePolicy* policy, StepRecorder* recorder, int64_t samples)
      : meta_(meta), policy_(policy), recorder_(recorder), samples_(samples) {}
  StepPart next(int64_t) override { return {meta_.batch(samples_)}; }
  SavePolicy* before_forward(const Batch&, int64_t part, bool, const Context&) override {
    begin_step(0);
    if (recorder_ == nullptr) return policy_;
    if (part == 0) return recorder_->policy();
    recorder_->next_batch();
    return policy_;
  }
  AtBackward at_backward(int64_t part) override {
    if (recorder_ == nullptr || part > 0) return {};
    return [this](const Variable& loss, const StepMemory& saved) {
      recorder_->before_backward(loss, saved);
    };
  }
  void after_parts(StepResult&) override {
    if (recorder_ != nullptr) recorder_->update();
  }

 private:
  const MetaStep& meta_;
  SavePolicy* policy_;
  StepRecorder* recorder_;
  int64_t samples_;
};

class MetaStep::Borrow {
 public:
  explicit Borrow(MetaStep& step)
      : step_(step), is_outer_(step.borrowed_.has_value() && !step.lent_.has_value()) {
    if (is_outer_) step.lent_.emplace(*step.borrowed_);
  }
  ~Borrow() {
    if (is_outer_) step_.lent_.reset();
  }
  Borrow(const Borrow&) = delete;
  Borrow& operator=(const Borrow&) = delete;

 private:
  MetaStep& step_;
  bool is_outer_;
};

MetaStep::MetaStep(const MetaRun& run, int64_t batch) : run_(run), device_(kMeta) {
  const CategoryBytes before = live_beside(device_);
  if (run_.own_model != nullptr) {
    borrowed_.emplace(*run_.own_model);
    model_ = {std::shared_ptr<Module>(), run_.own_model};  // owned elsewhere
  } else {
    model_ = run_.make_model(device_);
  }
  const Borrow borrow(*this);
  start();
  if (run_.counts_edges) {
    const CategoryScope scope(Category::input);
    data_ = Tensor::empty({run_.data_bytes}, DType::u8, device_);
  }
  own_ = live_beside(device_, before);
  step(nullptr, batch, 0);  // makes the optimizer's state
  own_ = live_beside(device_, before);
}

void MetaStep::start() {
  exchange_.reset();
  optimizer_ = run_.own_model == nullptr ? run_.make_optimizer(*model_)
                                         : run_.own_optimizer->without_state();
  FRUGAL_CHECK(optimizer_ != nullptr,
               "[meta] expected an optimizer with a without_state(), which a plan of memory needs, "
               "got one without");
  exchange_.emplace(Ranks(run_.ranks), *model_, *optimizer_, run_.ranks,
                    updates_in_backward(run_, 0), 0);
}

Batch MetaStep::batch(int64_t samples, bool evaluated) const {
  if (whole_) return *whole_;
  const auto& shape = evaluated && run_.evaluated ? run_.evaluated : run_.shape;
  Batch made = shape ? shape(samples, device_) : run_.task->shape(samples, device_);
  if (run_.counts_edges) made = with_extras_on_meta(std::move(made), held_);
  if (!made.held) return made;
  // A run keeps a copy of the input in the dtype of activations (train/place_batch.h).
  const CategoryScope scope(Category::input);
  if (run_.counts_edges) source_ = made.input;
  made.input = ops::cast(made.input, model_->activations());
  return whole_.emplace(std::move(made));
}

CategoryBytes MetaStep::owned_with(SavePolicy* policy) const {
  CategoryBytes all = own_;
  const auto* offload = policy != nullptr ? PolicyParts(*policy).offload : nullptr;
  if (offload != nullptr && !run_.on_cuda)  // beside a GPU, the buffer is in the host's memory
    all[static_cast<size_t>(Category::workspace)] += offload->store().file().buffer_bytes();
  return all;
}

// The batches that the loader prepares ahead.
std::vector<Batch> MetaStep::in_flight(int64_t samples, bool evaluated) const {
  std::vector<Batch> all;
  if (run_.ahead)
    for (const int64_t ahead : run_.ahead(samples)) all.push_back(batch(ahead, evaluated));
  return all;
}

// Counts the bytes of the parameters that have gradients.
int64_t MetaStep::parameter_bytes() const {
  int64_t bytes = 0;
  for (const auto& p : model_->parameters())
    if (p.parameter->requires_grad()) bytes += p.parameter->value().nbytes();
  return bytes;
}

int64_t MetaStep::blocks() {
  if (!run_.has_blocks) return 0;
  ++steps_;
  const Borrow borrow(*this);
  NoGrad no_grad;
  Rng rng(0);
  Context context;
  context.rng = &rng;
  context.checkpointed_blocks = kAllBlocks;
  Batch one = batch(1);
  run_forward(*run_.task, *model_, one, context);
  return context.block;
}

int64_t MetaStep::largest_parameter() const {
  int64_t bytes = 0;
  for (const auto& p : model_->parameters()) bytes = std::max(bytes, p.parameter->value().nbytes());
  return bytes;
}

bool MetaStep::convolves() const {
  const auto all = model_->parameters();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& p) { return p.parameter->value().dim() == 4; });
}

StepMemory MetaStep::step(SavePolicy* policy, int64_t samples, int64_t checkpointed_blocks) {
  return run(policy, nullptr, samples, checkpointed_blocks, run_.counts_kernels);
}

StepMemory MetaStep::highest(SavePolicy* policy, int64_t samples, int64_t checkpointed_blocks) {
  compress::Learner* const learner = policy != nullptr ? PolicyParts(*policy).learner : nullptr;
  if (learner == nullptr || !learner->differs_at_first())
    return step(policy, samples, checkpointed_blocks);
  const Borrow borrow(*this);
  // Adds to `own_` what `change` leaves alive.
  const auto owning = [this](const auto& change) {
    const CategoryBytes before = live_beside(device_);
    change();
    const CategoryBytes now = live_beside(device_);
    for (size_t i = 0; i < kCategories; ++i) own_[i] += now[i] - before[i];
  };
  StepMemory all;
  learner->set_step(1);
  learner->set_first_on_meta(true);
  owning([this] { start(); });
  owning([&] { all = step(policy, samples, checkpointed_blocks); });
  learner->set_first_on_meta(false);
  // Whether a later step is one that the policy learns from depends on the last one.
  const uint64_t last = run_.steps ? static_cast<uint64_t>(std::max<int64_t>(run_.steps(), 1))
                                   : std::numeric_limits<uint32_t>::max();
  learner->set_step(last);
  if (last > 1) all.raise(step(policy, samples, checkpointed_blocks));
  learner->set_step({});
  return all;
}

StepRecord MetaStep::record(SavePolicy& policy, int64_t samples, int64_t checkpointed_blocks) {
  const Borrow borrow(*this);
  StepRecorder recorder(*model_, *optimizer_, &policy);
  return recorder.finish(
      run(&policy, &recorder, samples, checkpointed_blocks, run_.counts_kernels));
}

int64_t MetaStep::kernel_bytes(SavePolicy* policy, int64_t samples, int64_t checkpointed_blocks) {
  const auto peak = [&](bool counts_kernels) {
    return run(policy, nullptr, samples, checkpointed_blocks, counts_kernels).peak;
  };
  return peak(true) - peak(false);
}

StepMemory MetaStep::run(SavePolicy* policy, StepRecorder* recorder, int64_t samples,
                         int64_t checkpointed_blocks, bool counts_kernels) {
  ++steps_;
  const Borrow borrow(*this);
  const ops::KernelMemoryScope kernels(counts_kernels);
  const MetaAsCuda device(run_.on_cuda);
  const Peak peak(device_, owned_with(policy));
  std::vector<Batch> ahead = in_flight(samples);
  if (run_.tracked) ahead.push_back(batch(run_.tracked(samples)));
  // What is measured after the step. A batch that is not released lives through the step anyway.
  if (policy != nullptr && run_.task->spec().releases_input &&
      PolicyParts(*policy).adaptive != nullptr)
    ahead.push_back(batch(std::min(samples, SensitivityOptions().samples)));
  Rng rng(0);
  Watch watch(*this, policy, recorder, samples);
  TrainingStep step({*run_.task, *model_, *optimizer_, *exchange_},
                    {.gradient_accumulation = run_.gradient_accumulation,
                     .label_smoothing = run_.label_smoothing,
                     .clip_norm = run_.clip_norm,
                     .in_backward = updates_in_backward(run_, checkpointed_blocks),
                     .checkpointed_blocks = checkpointed_blocks});
  StepMemory memory = step.run(watch, {.lr = kTrialRate, .rng = &rng}).memory;
  const StepMemory highest = peak.end();
  memory.peak = highest.peak;
  memory.at_peak = highest.at_peak;
  model_->zero_grad();
  return memory;
}

int64_t MetaStep::evaluation(int64_t samples, int64_t checkpointed_blocks) {
  ++steps_;
  const Borrow borrow(*this);
  const ops::KernelMemoryScope kernels(run_.counts_kernels);
  const MetaAsCuda device(run_.on_cuda);
  const Peak peak(device_, own_);
  const std::vector<Batch> ahead = in_flight(samples, true);
  {
    NoGrad no_grad;
    Context context;
    context.training = false;
    Batch now = batch(samples, true);
    run_forward(*run_.task, *model_, now, context, {.keep_output = reads_outputs(*run_.task)});
  }
  // The gradients of the last step still exist.
  const bool kept = !updates_in_backward(run_, checkpointed_blocks);
  return peak.end().peak + (kept ? parameter_bytes() : 0);
}

int64_t MetaStep::measuring(SavePolicy& policy, compress::AdaptivePolicy& adaptive, int64_t samples,
                            int64_t whole, int64_t checkpointed_blocks) {
  ++steps_;
  const Borrow borrow(*this);
  const ops::KernelMemoryScope kernels(run_.counts_kernels);
  const MetaAsCuda device(run_.on_cuda);
  const Peak peak(device_, owned_with(&policy));
  std::vector<Batch> held = in_flight(whole);
  held.push_back(batch(whole));
  {
    const compress::AdaptivePolicy::Probe probe(adaptive);
    RecomputeScope no_trace;
    Rng rng(0);
    Context context;
    context.rng = &rng;
    context.checkpointed_blocks = checkpointed_blocks;
    begin_step(0);
    forward_backward(*run_.task, *model_, batch(samples), context, &policy, {});
  }
  model_->zero_grad();
  return peak.end().peak + parameter_bytes();  // the gradient to compare with
}

}  // namespace frugal::train
