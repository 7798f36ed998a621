#include "train/step.h"

#include <algorithm>
#include <optional>

#include "autograd/timeline.h"
#include "core/memory/memory_trace.h"
#include "distributed/shared_statistics.h"
#include "optim/clip.h"
#include "optim/row_slices.h"
#include "train/batch_spec.h"
#include "train/captured_step.h"
#include "train/held_copies.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/ranks.h"

namespace frugal::train {

// A step while it runs.
struct TrainingStep::State {
  StepObserver& observer;
  const StepCall& call;
  int64_t parts;      // as the trainer counts them
  int64_t run_parts;  // fewer on meta
  PartWeights weights;
  StepResult result = {};
  std::optional<UpdateInBackward> in_backward = {};
  Context context = {};
  PassOptions how = {};
  std::optional<double> read_norm = {};  // the norm of gradients that are clipped already
  bool updated = false;                  // the update was part of the last pass
};

TrainingStep::TrainingStep(const StepSubject& subject, const StepOptions& options)
    : subject_(subject), options_(options), device_(subject.model.device()) {
  for (const auto& p : subject.model.parameters()) parameters_.push_back(*p.parameter);
}

StepResult TrainingStep::run(StepObserver& observer, const StepCall& call) {
  const TimeSpan span(Timeline::Kind::phase, "step");
  const int64_t parts = call.parts > 0 ? call.parts : options_.gradient_accumulation;
  State state{.observer = observer,
              .call = call,
              .parts = parts,
              .run_parts = device_.type == DeviceType::meta ? std::min<int64_t>(parts, 2) : parts,
              .weights = PartWeights(subject_.task, parts, subject_.ranks)};
  state.in_backward.emplace(subject_.optimizer, call.lr,
                            call.measures_norms ? &state.result.squares : nullptr);
  subject_.model.forget_idle();
  forget_evaluated_copies();
  begin_peak(device_);
  MemoryTrace::mark("forward");
  subject_.model.zero_grad();
  state.context.rng = call.rng;
  state.context.checkpointed_blocks = options_.checkpointed_blocks;
  state.how.label_smoothing = options_.label_smoothing;
  state.how.backward_anyway = !subject_.ranks.alone();
  if (options_.in_backward) state.how.leaf_done = state.in_backward->leaf_done();
  for (int64_t part = 0; part < state.run_parts; ++part) {
    add_part(state, part);
    // The rows of sparse gradients become more with each part.
    if (part == 0 && state.run_parts < parts &&
        std::any_of(parameters_.begin(), parameters_.end(), optim::has_sparse_grad))
      state.run_parts = parts;
  }
  subject_.exchange.finish();
  MemoryTrace::mark("update");
  observer.after_parts(state.result);
  update(state);
  end_peak(device_, state.result.memory);
  return std::move(state.result);
}

void TrainingStep::add_part(State& state, int64_t number) {
  const bool last = number + 1 == state.run_parts;
  PassOptions& how = state.how;
  StepPart part = state.observer.next(number);
  how.weight = device_.type == DeviceType::meta ? 1.0 / static_cast<double>(state.parts)
                                                : state.weights.next(part.batch, part.copies);
  if (part.counts) state.result.units += units_of(subject_.task.spec(), part.batch);
  SavePolicy* const policy = state.observer.before_forward(part.batch, number, last, state.context);
  how.before_backward = state.observer.at_backward(number);
  if (!subject_.ranks.alone() && part.copies == 1)
    how.gather = [this](const Tensor& rows) { return subject_.ranks.gather(rows, "rows"); };
  else
    how.gather = {};
  // Gradients of several batches are added here first, and then over the ranks.
  if (last && (options_.in_backward || options_.checkpointed_blocks == 0))
    how.leaf_done = subject_.exchange.leaf_done(how.leaf_done);
  // One wait for the device reads the norm and the loss.
  if (device_.type == DeviceType::cuda && last && subject_.ranks.alone() && !options_.in_backward &&
      !state.call.measures_norms && state.weights.factor() == 1)
    how.norm = [this] { return optim::clip_grad_norm_there(parameters_, options_.clip_norm); };
  const bool counts = part.counts;
  BatchResult result = pass(state, std::move(part), policy);
  state.read_norm = result.norm;
  state.observer.after_backward(result);
  state.result.loss += result.loss * how.weight;
  state.result.memory.raise(result.memory);
  if (!counts) {
    result.counted = result.correct = result.samples = 0;
    result.weight = 0;
  }
  state.result.results.push_back(result);
}

BatchResult TrainingStep::pass(State& state, StepPart part, SavePolicy* policy) {
  if constexpr (kHasCuda) {
    const StepObserver::Capture capture = state.observer.capture();
    if (capture.step != nullptr) {
      const StepUpdate update{subject_.optimizer, state.call.lr, true, options_.clip_norm};
      const CapturedResult result = capture.step->run(std::move(part.batch), state.context,
                                                      state.how, capture.number, &update);
      state.updated = result.updated;
      state.result.norm = result.norm;
      return result.batch;
    }
  }
  std::optional<distributed::SharedStatistics> shared;
  if (subject_.statistics != nullptr && part.copies == 1) shared.emplace(subject_.statistics);
  return forward_backward(subject_.task, subject_.model, std::move(part.batch), state.context,
                          policy, state.how);
}

void TrainingStep::update(State& state) {
  const TimeSpan span(Timeline::Kind::update, "update");
  StepResult& result = state.result;
  if (const double factor = state.weights.factor(); factor != 1) {
    subject_.exchange.scale(parameters_, factor);
    result.loss *= factor;
  }
  state.observer.before_clipping(result);
  if (state.read_norm)
    result.norm = *state.read_norm;
  else if (!state.updated)
    result.norm = options_.in_backward ? state.in_backward->norm(parameters_)
                                       : subject_.exchange.norm(parameters_, options_.clip_norm);
  state.observer.before_update(result);
  if (!state.updated) subject_.optimizer.step(state.call.lr);
  subject_.task.after_update(subject_.model, state.call.progress);
  state.observer.after_update();
}

}  // namespace frugal::train
