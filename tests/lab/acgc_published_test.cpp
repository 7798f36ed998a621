// AC-GC's published rule on whole networks: the bits of our policy against those of the formulas,
// which this file computes by plain loops on the same weights and batch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/bench/gradient_bench.h"
#include "apps/config/resolve.h"
#include "autograd/observer.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/choice.h"
#include "ops/dense/copy.h"

using namespace frugal;
using namespace frugal::apps;
using compress::AcgcOptions;
using compress::AcgcPolicy;

namespace {

double squares(const std::vector<double>& x) {
  double sum = 0;
  for (const double each : x) sum += each * each;
  return sum;
}

// Keeps everything, and notes for each tensor that a backward pass reads what the rule needs.
class PublishedRule final : public SavePolicy, public BackwardObserver {
 public:
  explicit PublishedRule(double growth) : e_(growth) {}
  Decision decide(const SaveInfo&, const Tensor&) override { return {}; }
  BackwardObserver* observer() override { return this; }

  void before(const BackwardStep& step, const Tensor& dy) override {
    dy_ = dy.to_vector();
    channels_ = static_cast<size_t>(dy.shape().back());
    height_ = dy.dim() == 4 ? dy.shape()[1] : 1;
    for (int i = 0; i < step.slots.size(); ++i) {
      const SavedTensor& slot = step.slots[i];
      if (!slot.defined() || slot.use().mask < 0 || !slot.serves_backward()) continue;
      if (!step.slots[slot.use().mask].defined()) continue;  // no relu follows
      // The gradient that reaches the norm itself, behind the relu.
      const Tensor mask = step.slots.unpack(slot.use().mask);
      const auto* bits = mask.data<uint8_t>();
      const auto rows = static_cast<int64_t>(dy_.size() / channels_);
      for (int64_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < channels_; ++c) {
          // 8 rows of a channel are a byte (ops/dense/bitmask.h).
          const auto byte = bits[static_cast<size_t>(r / 8) * channels_ + c];
          if ((byte >> (r % 8) & 1) == 0) dy_[static_cast<size_t>(r) * channels_ + c] = 0;
        }
      break;
    }
  }

  void after(const BackwardStep& step, const Grads& gradients) override {
    for (int i = 0; i < step.slots.size(); ++i) {
      const SavedTensor& slot = step.slots[i];
      if (!slot.defined() || slot.role() != Role::activation || !slot.serves_backward()) continue;
      const Use& use = slot.use();
      if (use.kind == Use::Kind::other || slot.rests_on().empty()) continue;
      const auto whole = [&](int input) {
        const Gradient& of = gradients[static_cast<size_t>(input)];
        return of.rows(0, of.shape()[0]);
      };
      Saved& saved = saved_[slot.rests_on().front()];
      saved.x = slot.unpack().to_vector();
      saved.channels = static_cast<size_t>(slot.shape().back());
      if (use.kind == Use::Kind::product) {
        // dW is [K, R, S, C], or [K, C] of a linear layer.
        const Tensor dw = whole(use.input);
        const double area = dw.dim() == 4 ? static_cast<double>(dw.shape()[1] * dw.shape()[2]) : 1;
        const double stride =
            dw.dim() == 4
                ? std::round(static_cast<double>(slot.shape()[1]) / static_cast<double>(height_))
                : 1;
        saved.allowed += e_ * e_ * squares(dw.to_vector());
        saved.readers += area / (stride * stride) * squares(dy_);
      } else {
        norm(step.slots, use, squares(whole(0).to_vector()), saved);
      }
    }
  }

  // What the rule executes for a tensor: the bits that it counts, f + 1, and one more, at most 16;
  // and the metadata of our codec, 9 bytes for each channel.
  double bits(uint64_t seq) const {
    const Saved& saved = saved_.at(seq);
    const auto n = static_cast<double>(saved.x.size());
    double bits = 0;
    for (size_t c = 0; c < saved.channels; ++c) {
      double bound2 = saved.readers > 0 ? saved.allowed / (2 * n * saved.readers) : HUGE_VAL;
      if (!saved.norm.empty()) bound2 = std::min(bound2, saved.norm[c]);
      double most = 0;
      for (size_t i = c; i < saved.x.size(); i += saved.channels)
        most = std::max(most, std::fabs(saved.x[i]));
      const double f = std::trunc(-0.5 * std::log2(bound2) + std::log2(most) - 1);
      bits +=
          std::min(std::clamp(f, 1.0, 15.0) + 2, 16.0) * n / static_cast<double>(saved.channels);
      bits += 72;
    }
    return bits;
  }
  bool has(uint64_t seq) const { return saved_.contains(seq); }
  // The tensors that are not among `others` and have enough rows to be packed.
  int more_than(const std::set<uint64_t>& others) const {
    int count = 0;
    for (const auto& [seq, saved] : saved_)
      count += !others.contains(seq) && saved.x.size() / saved.channels >= 8;
    return count;
  }

 private:
  struct Saved {
    std::vector<double> x, norm;  // norm: dx^2 by channel
    size_t channels = 1;
    double allowed = 0, readers = 0;
  };

  void norm(const Slots& slots, const Use& use, double dx2, Saved& saved) const {
    const std::vector<double> invstd = slots.unpack(use.invstd).to_vector();
    const std::vector<double> gamma = slots.unpack(use.weight).to_vector();
    const double rows = static_cast<double>(dy_.size() / channels_);
    saved.norm.assign(channels_, 0);
    for (size_t k = 0; k < channels_; ++k) {
      double mean = 0, dgamma = 0, nonzero = 0, largest = 0, most = 0;
      for (size_t i = k; i < dy_.size(); i += channels_) mean += saved.x[i] / rows;
      for (size_t i = k; i < dy_.size(); i += channels_) {
        dgamma += dy_[i] * (saved.x[i] - mean) * invstd[k];
        nonzero += dy_[i] != 0;
        largest = std::max(largest, dy_[i] * dy_[i]);
        most = std::max(most, std::fabs(saved.x[i]));
      }
      const double g2 = dgamma * dgamma + invstd[k] * invstd[k] * nonzero * nonzero * largest *
                                              (most / 2) * (most / 2);
      const double price =
          static_cast<double>(channels_) * gamma[k] * gamma[k] * std::pow(invstd[k], 4) * g2;
      saved.norm[k] = std::max(e_ * e_ * dx2 * rows / price, 0x1p-16);
    }
  }

  double e_;
  std::vector<double> dy_;
  size_t channels_ = 1;
  int64_t height_ = 1;
  std::map<uint64_t, Saved> saved_;
};

Config config_of(const std::string& text) {
  Config config = parse_config(Json::parse(text));
  resolve(config);
  return config;
}

}  // namespace

TEST_CASE("the published rule takes the bits of the published formulas") {
  struct Case {
    const char* config;
    int64_t steps;  // how long it trains before
  };
  const Case cases[] = {
      {R"({"model": {"name": "resnet20", "shortcut": "A"}, "data": {"name": "random",
          "shape": [32, 32, 3], "classes": 10, "batch_size": 16, "train_samples": 64}})",
       3},
      {R"({"model": {"name": "resnet50", "stem": "cifar"}, "data": {"name": "random",
          "shape": [32, 32, 3], "classes": 10, "batch_size": 2, "train_samples": 8}})",
       0}};
  for (const Case& each : cases)
    for (const double e : {1.0, 0.25}) {
      CAPTURE(each.config);
      CAPTURE(e);
      GradientBench bench(config_of(each.config));
      bench.train(each.steps);
      const RngKey key = bench.rng();
      const Batch batch = bench.next();
      PublishedRule rule(e);
      bench.gradient(batch, &rule, 0, key);
      AcgcOptions options = std::get<AcgcOptions>(compress::preset("acgc_paper").policy);
      options.e = e;
      options.codec = "fixed";  // a width for each channel, as the formulas have
      AcgcPolicy policy(options);
      bench.gradient(batch, &policy, 0, key);  // observed
      bench.gradient(batch, &policy, 1, key);
      double ours = 0, bits = 0, elements = 0;
      std::set<uint64_t> packed;
      for (const auto& item : policy.items()) {
        packed.insert(item.seq);
        if (!rule.has(item.seq)) {  // probabilities, which neither formula is about
          CHECK(item.elements <= 160);
          continue;
        }
        ours += 8 * static_cast<double>(item.bytes);
        bits += rule.bits(item.seq);
        elements += static_cast<double>(item.elements);
      }
      CHECK(rule.more_than(packed) == 1);  // the batch, which is there anyway
      const double taken = ours / elements, published = bits / elements;
      CAPTURE(taken);
      CAPTURE(published);
      CHECK(std::fabs(taken - published) < 0.1);
    }
}
