// Adaptive policy: a width for each packed tensor, so that the gradient's variance is least for a
// given number of bits on average.
//
// Tensor l adds c_l S_l(b_l) to the variance, S_l the relative variance of b bits; somebody
// measures the sensitivities c_l (apps/sensitivity.h) and tells them here. What is kept raw or
// rebuilt is as with the fixed policy of the same average, except that biased-but-corrected replays
// are not used: their correction needs 4 bits of every source.
//
// Tensors are known by SaveInfo::seq, so the network must save the same tensors in every step; one
// that saves others gets the average width for those that are new.
// Ref: Liu et al. 2022 (GACT), section 4.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "compress/policies/fixed_policy.h"

namespace frugal::compress {

struct AdaptiveOptions {
  FixedPolicyOptions keep;  // level and bits do not count
  double average = 4;       // bits per element of what is packed, in [1, 16], without metadata
  int min_bits = 1, max_bits = 16;
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class AdaptivePolicy final : public SavePolicy, public Adjustable, private Codec {
 public:
  // Errors: an average or widths out of range; those of FixedPolicy.
  explicit AdaptivePolicy(const AdaptiveOptions& options);
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  bool rebuilds_signs() const override { return keep_.rebuilds_signs(); }
  int64_t slice_bytes() const override { return keep_.slice_bytes(); }

  static constexpr int kRaw = 32;  // instead of a width: kept as it is

  // A tensor that the last step packed, or would have but for kRaw.
  struct Item {
    uint64_t seq = 0;
    int64_t elements = 0;
    int bits = 0;                            // or kRaw
    std::optional<double> sensitivity = {};  // c, where it was measured
    int64_t measured = -1;                   // the step of that
    Shape shape = {};
    bool has_sign = false;  // its codes carry one, whose other class counts `slope`
    double slope = 0;
    int64_t raw_bytes = 0;  // of the tensor as it is
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items() const;  // by seq
  // S of an item's group at `bits`: 1 / (2^b - 1)^2, or with a sign split_variance(), from 2 bits
  // on: with 1 bit, codes carry none, and the mask that must then be kept takes the other one. 0
  // for kRaw.
  static double variance(const Item& item, int bits);
  // sum c S(b) over the items.
  double predicted_variance() const;
  double average_bits() const;  // over the items' elements
  int least_bits(const Item& item) const;
  // What it takes at `bits`, or kRaw, with the mask that then is not in its codes.
  int64_t bytes(const Item& item, int bits) const;

  // The same tensor of this step packed again at `bits`, whatever its width is. The rounding is
  // drawn anew, apart from the first one and for each width, so that it does not depend on why the
  // first result was not taken.
  std::unique_ptr<Packed> pack_again(const Tensor& tensor, const SaveInfo& info, int bits) const {
    return retries_[static_cast<size_t>(bits - 1)].pack(tensor, info);
  }

  // For planners: this width, or kRaw, from the next step on. Errors: anything else.
  void set_bits(uint64_t seq, int bits);
  // The width of what a rebuild passes through and that waits for its consumers; before it is
  // set, the average. Errors: outside 1 to 16.
  void set_waiting_bits(int bits);
  double average() const { return options_.average; }
  // Another average from now on, and with it widths. REQUIRES: no graph of this policy is alive.
  // Errors: outside the range of widths.
  void set_average(double average);

  // The average; 0 with nearest rounding.
  double fineness() const override {
    return options_.keep.rounding == Rounding::nearest ? 0 : options_.average;
  }
  Range fineness_range() const override {
    return {static_cast<double>(options_.min_bits), static_cast<double>(options_.max_bits), 0.25};
  }
  double set_fineness(double bits) override {
    set_average(bits);
    return average();
  }

  // While it lives, steps repeat the last whole step's decisions, also for smaller batches, and
  // change nothing here; tensor `other`, if given, is rounded with another seed.
  class Probe {
   public:
    explicit Probe(AdaptivePolicy& policy, std::optional<uint64_t> other = {});
    ~Probe();
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

   private:
    AdaptivePolicy& policy_;
  };

  // Whether of a part of the batch, its first axis `part` of `of` long, an item's groups hold one
  // channel or many as those of the whole do: those of few rows mix channels (group_layout.h).
  bool is_grouped_alike(const Item& item, int64_t part, int64_t of) const;

  bool is_probed() const { return probing_; }
  void measured(uint64_t seq, double sensitivity, int64_t step);
  // The widths of least predicted variance within the average, from now on. Items that were never
  // measured count like the mean of the others, by element. Nothing happens while none was.
  void allocate();

  // For checkpoints: all that decisions depend on, so that a run goes on as if there had been no
  // stop. Steps differ in what they save, so `items` holds tensors of older steps, too, and
  // `decisions` says which of them the last step had. The width of what waits is not in it: it
  // comes with a plan.
  struct Decided {
    uint64_t seq = 0;
    Decision::What what = Decision::raw;
    bool packs = false;  // it is packed now, or packed when a rebuild passes through it
    bool carry_sign = true;
    bool operator==(const Decided&) const = default;
  };
  struct State {
    double average = 4;
    std::vector<Item> items = {};  // these two: by seq
    std::vector<Decided> decisions = {};
  };
  State state() const;
  // Errors, and no change: an average or bits out of range, a sensitivity below 0 or not finite, a
  // shape that does not go with its elements, a tensor twice.
  void restore(const State& state);

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override;
  const Quantizer& chosen(const Tensor& tensor, const SaveInfo& info) const;  // notes the tensor
  static void describe(Item& item, uint64_t seq, const Tensor& tensor);
  const Quantizer& quantizer(int bits, bool other) const {
    return (other ? others_ : quantizers_)[static_cast<size_t>(bits - 1)];
  }

  AdaptiveOptions options_;
  FixedPolicy keep_;
  std::deque<Quantizer> quantizers_, others_, retries_;  // of 1 to 16 bits, of three seeds
  std::map<uint64_t, Decision> decisions_;               // of the last whole step, by seq
  mutable std::map<uint64_t, Item> items_;
  int waiting_bits_ = 0;  // 0: the average's
  bool probing_ = false;
  std::optional<uint64_t> other_;
};

}  // namespace frugal::compress
