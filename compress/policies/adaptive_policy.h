// Adaptive policy: a width for each packed tensor, so that the gradient's variance is least for a
// given number of bits on average.
//
// Tensor l adds c_l S_l(b_l) to the variance, where S_l is the relative variance of b bits and c_l
// the tensor's sensitivity. The caller measures sensitivities and reports them by measured(). The
// policy keeps raw and rebuilds the same tensors as a fixed policy of the same average. Tensors
// that a rebuild reads whose bias is corrected have at least 4 bits (FixedPolicy::corrects).
//
// Tensors are known by SaveInfo::seq. If a step saves other tensors than the steps before, the new
// ones get the average width.
// Ref: Liu et al. 2022 (GACT), section 4.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "compress/policies/fixed_policy.h"
#include "compress/policies/learner.h"
#include "compress/quantize/quantize.h"

namespace frugal::compress {

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class AdaptivePolicy final : public SavePolicy, public Learner, public Adjustable, private Codec {
 public:
  // Errors: an average or widths out of range; those of FixedPolicy.
  explicit AdaptivePolicy(const AdaptiveOptions& options);
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  int64_t slice_bytes() const override { return keep_.slice_bytes(); }
  bool decides_by_shape() const override { return true; }
  bool packs_recomputed() const override { return keep_.packs_recomputed(); }
  void add_roles(PolicyRoles& roles) override;

  static constexpr int kRaw = 32;  // stands for a width: the tensor is kept as it is

  // A tensor that the last step packed, or kept raw because its width is kRaw.
  struct Item {
    uint64_t seq = 0;
    int64_t elements = 0;
    int bits = 0;                            // a width, or kRaw
    std::optional<double> sensitivity = {};  // c, if it was measured
    int64_t measured = -1;                   // the step in which it was measured
    Shape shape = {};
    bool has_sign = false;  // its codes carry a sign
    double slope = 0;       // Sign::slope; 0 without a sign
    int64_t raw_bytes = 0;  // bytes of the tensor as it is
    bool curved = false;    // SaveInfo::curved
    int source_bits = 0;    // SaveInfo::source_bits
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items() const;  // by seq
  // S of an item's group at `bits`: 1 / (2^b - 1)^2, or with a sign split_variance(), from 2 bits
  // on: with 1 bit, codes carry none, and the mask that must then be kept takes the other one. 0
  // for kRaw.
  static double variance(const Item& item, int bits);
  // sum c S(b) over the items.
  double predicted_variance() const;
  double average_bits() const;             // over the items' elements
  int least_bits(const Item& item) const;  // with the average of now
  // The width of a tensor until something is measured: one of the whole numbers around the average,
  // so that the tensors up to this one have the average, as exactly as they can.
  int first_width(const Item& item) const;
  // The bytes that the item takes at `bits`, or kRaw. A mask that the codes then do not carry
  // counts, too.
  int64_t bytes(const Item& item, int bits) const;

  // Packs the tensor of this step again at `bits`, whatever its width is. Each width draws its
  // rounding from a stream of its own. So the result does not depend on the first rounding, which
  // decided that the tensor is packed again.
  std::unique_ptr<Packed> pack_again(const Tensor& tensor, const SaveInfo& info, int bits) const {
    return retries_[static_cast<size_t>(bits - 1)].pack(tensor, info);
  }

  // For planners: sets the width from the next step on. Errors: bits other than 1 to 16 or kRaw.
  void set_bits(uint64_t seq, int bits);
  // Sets the width of tensors that a rebuild passes through, while they wait for their consumers.
  // They have the average until it is set. Errors: outside 1 to 16.
  void set_waiting_bits(int bits);
  double average() const { return options_.average; }
  // Sets another average from now on, and widths with it. REQUIRES: no graph of this policy is
  // alive. Errors: outside the range of widths.
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

  // While a Probe lives, steps repeat the decisions of the last whole step, also for smaller
  // batches, and do not change the policy. Tensor `other`, if given, is rounded with another seed.
  class Probe {
   public:
    explicit Probe(AdaptivePolicy& policy, std::optional<uint64_t> other = {});
    ~Probe();
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

   private:
    AdaptivePolicy& policy_;
  };

  // Groups of few rows have smaller ranges, and so finer steps, than those of a whole batch. Is the
  // rounding of a part of the batch, `part` of `of` samples, as coarse as that of the whole batch,
  // for this item? It is taken to be so where both have groups of at least 64 rows, or neither has.
  bool is_grouped_alike(const Item& item, int64_t part, int64_t of) const;

  bool is_probed() const { return probing_; }
  void measured(uint64_t seq, double sensitivity, int64_t step);
  // Sets the widths of least predicted variance within the average, from now on. Each element of an
  // item without a sensitivity counts like the mean of all other elements. Does nothing while no
  // item has a sensitivity.
  void allocate();

  // For checkpoints: all that decisions depend on, so that a run goes on as if it had not stopped.
  // Steps may save different tensors. So `items` holds tensors of older steps, too, and `decisions`
  // says which of them the last step had. The width of tensors that wait is not in the state,
  // because it comes with a plan.
  struct Decided {
    uint64_t seq = 0;
    Decision::What what = Decision::raw;
    bool packs = false;  // packed now, or packed when a rebuild passes through it
    bool carry_sign = true;
    bool operator==(const Decided&) const = default;
  };
  struct State {
    double average = 4;
    // Both lists are sorted by SaveInfo::seq.
    std::vector<Item> items = {};
    std::vector<Decided> decisions = {};

    static constexpr const char* kPolicy = "adaptive";  // Learned::policy
    static constexpr int kVersion = 2;                  // version 1 lacks Item::curved
    Learned write() const;
    static State read(const Learned& learned);  // Errors: see Learner
  };
  State state() const;
  // Errors, and no change: an average or bits out of range, a sensitivity below 0 or not finite, a
  // shape that does not go with its elements, a tensor twice.
  void restore(const State& state);
  Learned learned() const override { return state().write(); }
  void restore_learned(const Learned& learned) override {
    restore(learned.empty() ? State{options_.average} : State::read(learned));
  }
  // Sensitivities come from outside, where ranks take the mean of what they measured.
  Learned joined(const std::vector<Learned>&) const override { return learned(); }
  bool learns_at(uint64_t /*step*/) const override { return false; }

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override;
  std::unique_ptr<SlicePacker> pack_slices(const Tensor& like, const SaveInfo& info) const override;
  const Quantizer& chosen(const Tensor& tensor, const SaveInfo& info) const;  // notes the tensor
  // `usual` is the sensitivity of an element where it was not measured.
  void allocate_greedy(const std::vector<Item>& all, double usual);
  static void describe(Item& item, const SaveInfo& info, const Tensor& tensor);
  const Quantizer& quantizer(int bits, bool other) const {
    return (other ? others_ : quantizers_)[static_cast<size_t>(bits - 1)];
  }

  AdaptiveOptions options_;
  FixedPolicy keep_;
  // Each list has a quantizer for each width, 1 to 16 bits. The lists differ in their seeds.
  std::deque<Quantizer> quantizers_, others_, retries_;
  std::map<uint64_t, Decision> decisions_;  // decisions of the last whole step, by seq
  mutable std::map<uint64_t, Item> items_;
  int waiting_bits_ = 0;  // 0: as many as the average
  bool probing_ = false;
  std::optional<uint64_t> other_;
};

}  // namespace frugal::compress
