// Reads one backward pass and gives the squared bound of each tensor that it rests on. Internal to
// acgc_policy.h.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "autograd/observer.h"
#include "compress/policies/acgc_bounds.h"

namespace frugal::compress::acgc {

// Bounds of a rebuilt tensor become bounds of its sources. A normalization between them scales
// errors by |weight| invstd, channel by channel; a normalization of rows scales by the largest of
// these. Without a normalization between them, activation functions are taken to double errors at
// most. n sources share the bound: each gets 1/n of the bound, or of the variance.
// Squared bounds of a tensor in one observed step: one, or one for each channel.
struct Bounds {
  std::vector<double> squares;
  // What each bound counts for in the mean over steps. With the published rule it is the
  // denominator of the bound, so that the weighted mean of bounds is the ratio of the means of
  // numerators and denominators. With the derived rule it is 1.
  std::vector<double> weights;
  bool operator==(const Bounds&) const = default;
};

class Collector final : public BackwardObserver {
 public:
  struct Options {
    double e = 1;
    Rule rule = Rule::derived;
    Count count = Count::worst;
  };
  // `waits`: is a tensor that was to be rebuilt, so that what it rests on must be looked up?
  Collector(const Options& options, std::function<bool(uint64_t seq)> waits)
      : options_(options), waits_(std::move(waits)) {}

  void before(const BackwardStep& step, const Tensor& dy) override;
  void after(const BackwardStep& step, const Grads& gradients) override;

  void clear();
  void set_e(double e) { options_.e = e; }
  // By seq. Bounds that are not finite are left out.
  std::map<uint64_t, Bounds> bounds2() const;

 private:
  struct Reader {
    double allowed = 0, price = 0;  // sums over products
    Bounds cap;                     // the least bound of all other readers; empty: none
    bool operator==(const Reader&) const = default;
    void cap_by(const Bounds& other);
  };
  struct Source {
    Reader direct, through;     // readers of it, and readers of what is rebuilt from it
    std::vector<double> slope;  // squared: how much errors grow on the way to the rebuilt tensor
  };
  double share() const;  // the share of the squared gradients that are seen
  void take_memory(const SavedTensor& slot, const Grads& gradients) const;
  void product(const SavedTensor& slot, const Grads& gradients);
  void normalized(const Slots& slots, const SavedTensor& slot, const Grads& gradients);
  void normalized_rows(const Slots& slots, const SavedTensor& slot, const Grads& gradients);
  void scales(const SavedTensor& slot, std::vector<double> slope);
  void other(const SavedTensor& slot, const Grads& gradients);
  void add(const SavedTensor& slot, const Reader& reader);

  Options options_;
  std::function<bool(uint64_t seq)> waits_;
  Tensor dy_;  // where the op's mask, if any, is set; else 0
  // The squared norms of dy_, and of dy_ times the weight that the use of one slot names.
  double dy2_ = 0, factor2_ = 0;
  std::map<uint64_t, Source> sources_;
  std::vector<uint64_t> chain_;  // what the last rebuilt tensor with several sources rests on
};

}  // namespace frugal::compress::acgc
