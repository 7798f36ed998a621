// What a configuration's compression adds to the gradient of its network, compared with the
// variance from the choice of the minibatch. Ref: Chen et al. 2021 (ActNN), section 6.1, "gradient
// variance", and theorem 3, its sum over layers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "train/gradient_noise.h"
#include "train/policy_parts.h"

namespace frugal::apps {
namespace {

constexpr uint64_t kFirst = 1000;  // number of the step of the first draw
// The other gradient of a pair rounds as in a step that is so much later.
constexpr uint64_t kOther = uint64_t{1} << 32;

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

// The place of the layer that a tensor belongs to, by SaveInfo::seq of the tensors whose layer is
// known. Others, which only wait for a rebuild, belong to the layer of the one before them.
class Layers {
 public:
  void add(uint64_t seq, size_t layer) { known_[seq] = layer; }
  bool has(size_t layer) const {
    return std::any_of(known_.begin(), known_.end(),
                       [layer](const auto& each) { return each.second == layer; });
  }
  size_t of(uint64_t seq) const {
    const auto next = known_.upper_bound(seq);
    return next == known_.begin() ? 0 : std::prev(next)->second;
  }

 private:
  std::map<uint64_t, size_t> known_;
};

// Decides as another policy, but packs only the tensors of layers from `first` on, and rounds those
// of `first` as in a step that is `add` later. It learns nothing.
class SomePacked final : public SavePolicy {
 public:
  SomePacked(SavePolicy& inner, const Layers& layers, size_t first, uint64_t add)
      : inner_(inner), layers_(layers), first_(first), add_(add) {}
  bool lossy() const override { return inner_.lossy(); }
  int64_t slice_bytes() const override { return inner_.slice_bytes(); }
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner_.decide(info, value);
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
  SavePolicy& inner_;
  const Layers& layers_;
  size_t first_;
  uint64_t add_;
  std::map<const Codec*, OtherStep> codecs_;
};

// What a policy has learned, which the measurements by layer leave as it was.
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

// The first `parts` parts of a name: "layer1.0" of "layer1.0.conv1" for two.
std::string begin_of(const std::string& name, int64_t parts) {
  size_t end = 0;
  for (int64_t i = 0; i < parts && end != std::string::npos; ++i)
    end = name.find('.', i == 0 ? 0 : end + 1);
  return name.substr(0, end);
}

// What a layer adds to the variance of the gradient.
struct VarianceRow {
  std::string name;
  std::vector<std::pair<size_t, size_t>> places;  // [begin, end) of its parameters in the gradient
  int64_t packed = 0;                             // tensors
  Estimate own;                                   // the variance of the gradient of its parameters
  // What the rounding of its tensors adds to the variance of the whole gradient, with the gradients
  // that come from the layers behind it as noisy as they are: a term of theorem 3.
  Estimate from;
  std::vector<double> into;  // the parts of `from`, by the layer that they are added to
};

std::vector<float> at(const std::vector<float>& gradient,
                      const std::vector<std::pair<size_t, size_t>>& places) {
  std::vector<float> part;
  for (const auto& [begin, end] : places)
    part.insert(part.end(), gradient.begin() + static_cast<std::ptrdiff_t>(begin),
                gradient.begin() + static_cast<std::ptrdiff_t>(end));
  return part;
}

// The gradient of each layer's parameters.
class NoiseByLayer {
 public:
  NoiseByLayer(const std::vector<VarianceRow>& rows, const std::vector<float>& exact)
      : rows_(rows) {
    for (const VarianceRow& row : rows) noise_.emplace_back(at(exact, row.places));
  }
  void add(const std::vector<float>& gradient) {
    for (size_t i = 0; i < rows_.size(); ++i) noise_[i].add(at(gradient, rows_[i].places));
  }
  Estimate variance(size_t row) const { return noise_[row].variance(); }

 private:
  const std::vector<VarianceRow>& rows_;
  std::vector<GradientNoise> noise_;
};

// The layers in the order of their parameters.
std::vector<VarianceRow> rows_of(Module& model, const std::vector<SavedRecord>& tensors,
                                 int64_t parts, Layers& layers) {
  std::vector<VarianceRow> rows;
  std::map<std::string, size_t> known;
  const auto place_of = [&](const std::string& layer) {
    const auto [place, fresh] = known.emplace(begin_of(layer, parts), rows.size());
    if (fresh) rows.emplace_back().name = place->first;
    return place->second;
  };
  size_t begin = 0;
  for (const auto& p : model.parameters()) {
    const size_t end = begin + static_cast<size_t>(p.parameter->value().numel());
    const size_t dot = p.name.rfind('.');
    rows[place_of(dot == std::string::npos ? p.name : p.name.substr(0, dot))].places.emplace_back(
        begin, end);
    begin = end;
  }
  for (const SavedRecord& tensor : tensors) {
    if (!tensor.seq) continue;
    const size_t place = place_of(tensor.layer);
    layers.add(*tensor.seq, place);
    if (tensor.how == SavedRecord::How::packed || tensor.how == SavedRecord::How::moved)
      ++rows[place].packed;
  }
  return rows;
}

Json json_of(const Estimate& e, double unit) {
  return {{"value", e.value / unit}, {"standard_error", e.error / unit}};
}

std::string text_of(const Estimate& e, double unit) {
  return fmt::format("{:.4f} +- {:.4f}", e.value / unit, 1.96 * e.error / unit);
}

Json json_of(const std::vector<VarianceRow>& rows, double unit) {
  Json all = Json::array();
  for (const VarianceRow& row : rows) {
    Json into = Json::object();
    for (size_t i = 0; i < rows.size(); ++i) into[rows[i].name] = row.into[i] / unit;
    all.push_back({{"layer", row.name},
                   {"packed_tensors", row.packed},
                   {"variance", json_of(row.own, unit)},
                   {"from", json_of(row.from, unit)},
                   {"into", into}});
  }
  return all;
}

void print(const std::vector<VarianceRow>& rows, double unit) {
  std::vector<std::vector<std::string>> lines = {
      {"layer", "its gradient's variance", "packed tensors", "what they add"}};
  double own = 0, from = 0;
  int64_t tensors = 0;
  for (const VarianceRow& row : rows) {
    lines.push_back({row.name, text_of(row.own, unit), std::to_string(row.packed),
                     row.from.value == 0 ? "" : text_of(row.from, unit)});
    own += row.own.value;
    from += row.from.value;
    tensors += row.packed;
  }
  lines.push_back({"sum", fmt::format("{:.4f}", own / unit), std::to_string(tensors),
                   fmt::format("{:.4f}", from / unit)});
  std::printf("\n%s", table(lines).c_str());
  std::printf(
      "what they add: to the variance of the whole gradient; by theorem 3 of ActNN this adds up to "
      "the whole. With recipes it is more, where rebuilt values are rounded again\n");
}

// Fills what the tensors of each layer add. Two gradients, whose roundings differ in the tensors of
// one layer alone, lie apart by twice that in expectation; the tensors of the layers before it are
// raw. So a half of `draws` pairs measure a layer.
void split(GradientBench& bench, const Batch& batch, SavePolicy& policy, RngKey key, int64_t draws,
           const Layers& layers, std::vector<VarianceRow>& rows) {
  Unchanged before(policy);
  for (size_t i = rows.size(); i-- > 0;) {
    VarianceRow& row = rows[i];
    row.into.assign(rows.size(), 0);
    if (!layers.has(i)) continue;
    double sum = 0, squares = 0;
    const int64_t pairs = draws / 2;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const auto gradient = [&](uint64_t add) {
        SomePacked some(policy, layers, i, add);
        const std::vector<float> drawn =
            bench.gradient(batch, &some, kFirst + static_cast<uint64_t>(pair), key);
        before.restore();
        return drawn;
      };
      const std::vector<float> one = gradient(0), other = gradient(kOther);
      double whole = 0;
      for (size_t k = 0; k < rows.size(); ++k) {
        double half = 0;
        for (const auto& [begin, end] : rows[k].places)
          for (size_t p = begin; p < end; ++p) {
            const double by = static_cast<double>(one[p]) - other[p];
            half += by * by / 2;
          }
        row.into[k] += half / static_cast<double>(pairs);
        whole += half;
      }
      sum += whole;
      squares += whole * whole;
    }
    const auto n = static_cast<double>(pairs);
    row.from.value = sum / n;
    row.from.error = std::sqrt(std::max(squares / n - sum / n * sum / n, 0.0) / (n - 1));
  }
}

}  // namespace

void bench_variance(const BenchArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  const RngKey key = bench.rng();
  const double unit = bench.minibatch_variance(arguments.batches, key);
  const Batch batch = bench.next();
  const std::vector<float> exact = bench.gradient(batch, nullptr, 0, key);
  const int64_t whole = bench.memory().saved();
  const auto policy =
      make_policy(make_choice(config.compression), kCpu, static_cast<uint64_t>(config.run.seed));
  bench.let_learn(*policy, config, key);
  std::vector<VarianceRow> rows;
  Layers layers;
  if (arguments.layers > 0) {
    Unchanged before(*policy);
    rows =
        rows_of(bench.model(), bench.saved(batch, *policy, kFirst, key), arguments.layers, layers);
    before.restore();
  }
  GradientNoise noise(exact);
  NoiseByLayer by_layer(rows, exact);
  for (int64_t draw = 0; draw < arguments.draws; ++draw) {
    const std::vector<float> gradient =
        bench.gradient(batch, policy.get(), kFirst + static_cast<uint64_t>(draw), key);
    noise.add(gradient);
    by_layer.add(gradient);
  }
  const Estimate variance = noise.variance(), bias = noise.squared_bias();
  const int64_t bytes = bench.memory().saved();
  const double less = static_cast<double>(whole) / static_cast<double>(bytes);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].own = by_layer.variance(i);
  split(bench, batch, *policy, key, arguments.draws, layers, rows);
  if (arguments.json) {
    Json document = {{"model", config.model.name},
                     {"batch_size", config.data.batch_size},
                     {"train_steps", arguments.train_steps},
                     {"batches", arguments.batches},
                     {"draws", arguments.draws},
                     {"minibatch_variance", unit},
                     {"activation_bytes", bytes},
                     {"L0_activations_over_these", less},
                     {"variance", json_of(variance, unit)},
                     {"squared_bias", json_of(bias, unit)}};
    if (!rows.empty()) document["layers"] = json_of(rows, unit);
    print_json(document);
    return;
  }
  std::printf("%s", table({{"", "activations", "L0's over these", "variance", "squared bias"},
                           {run_title(config), readable_bytes(bytes), fmt::format("{:.2f}x", less),
                            text_of(variance, unit), text_of(bias, unit)}})
                        .c_str());
  std::printf(
      "after %lld steps; %lld draws; over the variance of the gradient between minibatches (of "
      "%lld); intervals of 95 %%\n",
      static_cast<long long>(arguments.train_steps), static_cast<long long>(arguments.draws),
      static_cast<long long>(arguments.batches));
  if (!rows.empty()) print(rows, unit);
}

}  // namespace frugal::apps
