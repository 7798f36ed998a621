#include "train/noise/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "autograd/checkpoint.h"
#include "ops/dense/elementwise.h"
#include "ops/optimizer/sgd.h"
#include "train/ranks/ranks.h"

namespace frugal::train {
namespace {

// Computes the gradient of `batch` and takes it away from the parameters. Nothing where the loss is
// not finite.
std::optional<std::vector<Tensor>> gradient(const Task& task, Module& model, SavePolicy& policy,
                                            const Batch& batch, const PassSettings& step) {
  RecomputeScope no_trace;
  Rng stream;
  stream.restore(step.rng);
  Context context;
  context.rng = &stream;
  context.checkpointed_blocks = step.checkpointed_blocks;
  model.zero_grad();
  begin_step(step.number);
  const BatchResult result =
      forward_backward(task, model, batch, context, &policy, {step.label_smoothing, 1, {}});
  std::vector<Tensor> all;
  for (const auto& p : model.parameters()) all.push_back(p.parameter->grad());
  model.zero_grad();
  if (!std::isfinite(result.loss)) return std::nullopt;
  return all;
}

double squared_distance(const std::vector<Tensor>& a, std::vector<Tensor> b) {
  CategoryScope scope(Category::workspace);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() && b[i].defined()) sum += ops::sum_of_squares(ops::sub(a[i], b[i]));
    b[i] = {};
  }
  return sum;
}

compress::AdaptivePolicy& adaptive_of(const PolicyParts& policy) {
  FRUGAL_ASSERT(policy.adaptive != nullptr);
  return *policy.adaptive;
}

}  // namespace

std::optional<std::vector<double>> measure_sensitivity(const Task& task, Module& model,
                                                       PolicyParts policy, const Batch& batch,
                                                       int64_t of, const PassSettings& step,
                                                       const std::vector<uint64_t>& seqs) {
  compress::AdaptivePolicy& adaptive = adaptive_of(policy);
  std::map<uint64_t, const compress::AdaptivePolicy::Item> items;
  for (const auto& item : adaptive.items()) items.emplace(item.seq, item);
  const double share = static_cast<double>(batch.input.size(0)) / static_cast<double>(of);
  auto with_other = [&](std::optional<uint64_t> seq) {
    const compress::AdaptivePolicy::Probe probe(adaptive, seq);
    return gradient(task, model, *policy.policy, batch, step);
  };
  const std::optional<std::vector<Tensor>> base = with_other({});
  if (!base) return std::nullopt;
  std::vector<double> all;
  for (const uint64_t seq : seqs) {
    const auto& item = items.at(seq);
    std::optional<std::vector<Tensor>> other = with_other(seq);
    if (!other) return std::nullopt;
    const double distance = squared_distance(*base, std::move(*other));
    if (!std::isfinite(distance)) return std::nullopt;
    all.push_back(share * distance / (2 * compress::AdaptivePolicy::variance(item, item.bits)));
  }
  return all;
}

Adaptation::Adaptation(const Task& task, Module& model, PolicyParts policy,
                       const SensitivityOptions& options, const Ranks& ranks)
    : task_(task),
      model_(model),
      policy_(policy),
      adaptive_(adaptive_of(policy)),
      options_(options),
      ranks_(ranks) {}

bool Adaptation::due(int64_t step) const {
  return step == options_.first || step % options_.interval == 0;
}

int64_t Adaptation::samples_for(const std::vector<compress::AdaptivePolicy::Item>& items,
                                int64_t most, int64_t of) const {
  constexpr double kMuch = 0.1;  // a share of all elements
  double all = 0;
  for (const auto& item : items) all += static_cast<double>(item.elements);
  int64_t samples = std::min(options_.samples, most);
  const auto mixed = [&] {
    double elements = 0;
    for (const auto& item : items)
      if (!adaptive_.is_grouped_alike(item, samples, of))
        elements += static_cast<double>(item.elements);
    return elements;
  };
  while (samples < most && mixed() > kMuch * all) samples = std::min(2 * samples, most);
  return samples;
}

std::vector<compress::AdaptivePolicy::Item> Adaptation::packed_items() const {
  std::vector<compress::AdaptivePolicy::Item> items = adaptive_.items();
  std::erase_if(items,
                [](const auto& item) { return item.bits == compress::AdaptivePolicy::kRaw; });
  return items;
}

// A graph cannot be divided, so measuring with it costs as much as a step.
int64_t Adaptation::samples_of(const Batch& batch, int64_t of,
                               const std::vector<compress::AdaptivePolicy::Item>& items) const {
  const int64_t most = std::min(of, options_.most ? options_.most() : of);
  if (most == 0) return 0;
  const int64_t n = whole_of(of);
  const int64_t all = batch.input.size(0);
  return task_.is_divisible(batch) ? std::min(samples_for(items, most, n), all) : all;
}

int64_t Adaptation::whole_of(int64_t samples) const {
  return options_.batch == 0 ? samples : options_.batch;
}

Measured Adaptation::keep(const Batch& batch) const {
  const int64_t of = batch.input.size(0);
  if (!task_.spec().releases_input || !task_.is_divisible(batch)) return {batch, of};
  const auto items = packed_items();
  const int64_t samples = samples_of(batch, of, items);
  // Nothing is known before the first step.
  if (items.empty() || samples == 0 || 2 * samples > of) return {batch, of};
  return {copy_of(task_, batch, 0, samples), of};
}

void Adaptation::refresh(const Measured& kept, int64_t step, const PassSettings& pass) {
  const Batch& batch = kept.batch;
  std::vector<compress::AdaptivePolicy::Item> items = packed_items();
  if (!ranks_.any(!items.empty(), "tensors to measure")) return;
  // The last batch of an epoch may be shorter. Sensitivities are those of a whole batch all the
  // same.
  const bool whole = !task_.is_divisible(batch);
  const int64_t n = whole ? kept.of : whole_of(kept.of);
  // Shares of a batch may differ by a sample, and all ranks measure the same tensors.
  const int64_t samples =
      -ranks_.most(-samples_of(batch, kept.of, items), "samples of a measurement");
  if (samples == 0) return;
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.measured < b.measured; });
  const bool started = std::any_of(items.begin(), items.end(),
                                   [](const auto& item) { return item.sensitivity.has_value(); });
  if (started) {
    // One pass more computes the gradient that the others are compared with.
    const double passes =
        options_.share * static_cast<double>(options_.interval * n) / static_cast<double>(samples);
    const auto affordable = std::max<int64_t>(static_cast<int64_t>(passes) - 1, 1);
    if (affordable < static_cast<int64_t>(items.size()))
      items.resize(static_cast<size_t>(affordable));
  }
  std::vector<uint64_t> seqs;
  for (const auto& item : items) seqs.push_back(item.seq);
  const Batch part = task_.part(batch, 0, samples);
  const std::optional<std::vector<double>> mine =
      measure_sensitivity(task_, model_, policy_, part, n, pass, seqs);
  // The update before may have made the loss or the gradient infinite. The next step says so.
  if (ranks_.any(!mine, "a measurement that is not finite")) return;
  const std::vector<double> found = ranks_.mean(seqs, *mine, "sensitivities");
  for (size_t i = 0; i < seqs.size(); ++i)
    adaptive_.measured(seqs[i], (items[i].sensitivity.value_or(found[i]) + found[i]) / 2, step);
  options_.allocate ? options_.allocate() : adaptive_.allocate();
}

}  // namespace frugal::train
