#include "train/noise/gradient_study.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compress/policies/wrapping_policy.h"
#include "train/policy_parts.h"

namespace frugal::train {
namespace {

constexpr uint64_t kFirstDraw = 1000;  // the step of the first draw, after those of let_learn()
// The other gradient of a pair rounds as in a step that is so much later.
constexpr uint64_t kOtherDraw = uint64_t{1} << 32;

// A codec that rounds as in another step.
class OtherStep final : public Codec {
 public:
  OtherStep(const Codec& inner, uint64_t add) : inner_(inner), add_(add) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    return inner_.pack(tensor, moved(info));
  }
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override {
    return inner_.pack_and_run(tensor, moved(info), pass);
  }

 private:
  SaveInfo moved(SaveInfo info) const {
    info.step += add_;
    return info;
  }
  const Codec& inner_;
  uint64_t add_;
};

// The layers of saved tensors, by SaveInfo::seq of the tensors whose layer is known. Others, which
// only wait for a rebuild, belong to the layer of the one before them.
struct LayersOfTensors {
  std::map<uint64_t, size_t> known;
  size_t of(uint64_t seq) const {
    const auto next = known.upper_bound(seq);
    return next == known.begin() ? 0 : std::prev(next)->second;
  }
};

// Decides as another policy, but packs only the tensors of layers from `first` on, and rounds those
// of `first` as in a step that is `add` later. It learns nothing.
class SomePacked final : public compress::StandInPolicy {
 public:
  SomePacked(SavePolicy& inner, const LayersOfTensors& layers, size_t first, uint64_t add)
      : StandInPolicy(inner), layers_(layers), first_(first), add_(add) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner().decide(info, value);
    const size_t layer = layers_.of(info.seq);
    if (layer < first_) {
      if (decision.what == Decision::pack) decision.what = Decision::raw;
      decision.codec = nullptr;  // what is rebuilt waits raw
    } else if (layer == first_ && decision.codec != nullptr) {
      decision.codec = &codecs_.try_emplace(decision.codec, *decision.codec, add_).first->second;
    }
    return decision;
  }

 private:
  const LayersOfTensors& layers_;
  size_t first_;
  uint64_t add_;
  std::map<const Codec*, OtherStep> codecs_;
};

// What a policy has learned, which measurements by layer leave as it was.
class Unchanged {
 public:
  explicit Unchanged(SavePolicy& policy) : parts_(policy) {
    if (parts_.learner != nullptr) learned_ = parts_.learner->learned();
  }
  void restore() {
    if (parts_.learner != nullptr) parts_.learner->restore_learned(learned_);
  }

 private:
  PolicyParts parts_;
  compress::Learned learned_;
};

}  // namespace

GradientStudy::GradientStudy(RunRecipe recipe)
    : smoothing_(recipe.options.label_smoothing),
      lr_(recipe.lr),
      checkpointed_blocks_(recipe.options.checkpointed_blocks),
      run_(std::move(recipe)),
      probe_(run_.task(), run_.model()) {}

void GradientStudy::train(int64_t steps) {
  TrialOptions options = run_.trial_options();
  options.compression = {compress::bits(0, {.recipes = false})};
  TrialRun trial(
      run_.task(), run_.model(), run_.optimizer(), [this] { return next(); }, options, run_.rng());
  for (int64_t i = 0; i < steps; ++i) trial.step(static_cast<uint64_t>(i), lr_);
}

Batch GradientStudy::next() {
  for (;;) {
    Batch batch = run_.next_batch();
    const int64_t size = batch.input.size(0);
    if (batch_size_ == 0) batch_size_ = size;
    // The last batch of an epoch may be short.
    if (size == batch_size_ || !task().is_divisible(batch)) return batch;
  }
}

std::vector<float> GradientStudy::gradient(const Batch& batch, SavePolicy* policy, uint64_t step,
                                           RngKey start, int64_t checkpointed_blocks) {
  return probe_.gradient(batch, policy, pass(step, start, checkpointed_blocks));
}

Batch GradientStudy::let_learn(SavePolicy& policy) {
  Batch batch;
  for (int64_t i = 0; i < kLearning; ++i)
    gradient(batch = next(), &policy, static_cast<uint64_t>(i), rng(), checkpointed_blocks_);
  return batch;
}

void GradientStudy::begin(int64_t minibatches, int64_t parts) {
  parts_ = parts;
  key_ = rng();
  layers_ = gradient_layers(model(), parts);
  errors_ = {};
  errors_.layers.resize(layers_.names.size());
  batch_ = next();
  // A whole graph is the only batch there is.
  const bool varies = task().is_divisible(batch_) || run_.batches().batches() > 1;
  if (minibatches > 0 && varies) {
    std::vector<float> drawn = gradient(batch_, nullptr, 0, key_);
    GradientNoise noise(std::vector<float>(drawn.size(), 0.0f), layers_);
    noise.add(drawn);
    for (int64_t i = 1; i < minibatches; ++i) noise.add(gradient(next(), nullptr, 0, key_));
    errors_.minibatch = noise.variance();
    for (size_t i = 0; i < errors_.layers.size(); ++i)
      errors_.layers[i].minibatch = noise.variance(i);
    batch_ = next();
  }
  exact_ = gradient(batch_, nullptr, 0, key_);
  whole_memory_ = probe_.memory();
  for (const auto& [first, end, layer] : layers_.spans) {
    double square = 0;
    for (size_t i = first; i < end; ++i) square += static_cast<double>(exact_[i]) * exact_[i];
    errors_.layers[layer].square += square;
    errors_.square += square;
  }
}

LayeredErrors GradientStudy::measure(SavePolicy& policy, int64_t draws,
                                     std::optional<int64_t> checkpointed_blocks) {
  FRUGAL_ASSERT(!exact_.empty());
  GradientNoise noise(exact_, layers_);
  for (int64_t draw = 0; draw < draws; ++draw)
    noise.add(gradient(batch_, &policy, kFirstDraw + static_cast<uint64_t>(draw), key_,
                       checkpointed_blocks.value_or(checkpointed_blocks_)));
  LayeredErrors found = errors_;
  found.memory = probe_.memory();
  found.rounding = noise.variance();
  found.squared_bias = noise.squared_bias();
  for (size_t i = 0; i < found.layers.size(); ++i) {
    found.layers[i].rounding = noise.variance(i);
    found.layers[i].squared_bias = noise.squared_bias(i);
  }
  return found;
}

// Two gradients, whose roundings differ in the tensors of one layer alone, lie apart by twice what
// these add in expectation. The tensors of the layers before it are raw.
std::vector<RoundedLayer> GradientStudy::measure_by_source(SavePolicy& policy, int64_t draws) {
  FRUGAL_ASSERT(!exact_.empty());
  // What a recomputed block saves is not known by its layer.
  FRUGAL_CHECK(
      checkpointed_blocks_ == 0 || !policy.packs_recomputed(),
      "[gradient study] expected recomputed blocks that keep their inputs whole, got packed "
      "ones");
  Unchanged before(policy);
  LayersOfTensors tensors;
  std::vector<RoundedLayer> rows;
  for (const SavedRecord& tensor : probe_.saved(batch_, policy, run_.optimizer(),
                                                pass(kFirstDraw, key_, checkpointed_blocks_))) {
    if (!tensor.seq) continue;
    const size_t place = layers_.place(begin_of(tensor.layer, parts_));
    tensors.known[*tensor.seq] = place;
    rows.resize(layers_.names.size());
    if (tensor.how == SavedRecord::How::packed || tensor.how == SavedRecord::How::moved)
      ++rows[place].packed;
  }
  rows.resize(layers_.names.size());
  before.restore();
  errors_.layers.resize(rows.size());
  const auto pairs = static_cast<double>(draws / 2);
  for (size_t i = rows.size(); i-- > 0;) {
    RoundedLayer& row = rows[i];
    row.into.assign(rows.size(), 0);
    if (std::none_of(tensors.known.begin(), tensors.known.end(),
                     [i](const auto& each) { return each.second == i; }))
      continue;
    double sum = 0, squares = 0;
    for (int64_t pair = 0; pair < draws / 2; ++pair) {
      const auto drawn = [&](uint64_t add) {
        SomePacked some(policy, tensors, i, add);
        std::vector<float> one = gradient(batch_, &some, kFirstDraw + static_cast<uint64_t>(pair),
                                          key_, checkpointed_blocks_);
        before.restore();
        return one;
      };
      const std::vector<float> one = drawn(0), other = drawn(kOtherDraw);
      double whole = 0;
      for (const auto& [begin, end, layer] : layers_.spans) {
        double half = 0;
        for (size_t p = begin; p < end; ++p) {
          const double by = static_cast<double>(one[p]) - other[p];
          half += by * by / 2;
        }
        row.into[layer] += half / pairs;
        whole += half;
      }
      sum += whole;
      squares += whole * whole;
    }
    row.from.value = sum / pairs;
    row.from.error =
        std::sqrt(std::max(squares / pairs - row.from.value * row.from.value, 0.0) / (pairs - 1));
  }
  return rows;
}

}  // namespace frugal::train
