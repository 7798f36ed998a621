// ActNN: bits of each tensor and of each sample by analytic sensitivities, for any model.
//
// Forward: the samples of a tensor share its bits by the squared ranges of their groups. Backward,
// every `interval` steps: norms of gradients give what each tensor's rounding adds to the
// gradient's variance, and the tensors share the budget by that (compress/policies/allocate.h).
//
// - A tensor that products read (Use::product) has w_n = fan / 6 * mean R_n^2 * |dy|^2 / N
//   (actnn_sensitivity.h), summed over its readers. Samples have no identity from step to step, so
//   |dy|^2 is the whole batch's, a moving average (0.5) over the steps that are observed, and
//   samples differ by their ranges alone.
// - A reader whose operand is rebuilt counts for the tensors that it is rebuilt from, their errors
//   scaled as the normalization between them does, channel by channel: (weight * invstd)^2.
// - A tensor that only a normalization reads has the bits of the tensor before it that has a
//   sensitivity, and its samples go by their ranges; before the first of those, the average. ActNN
//   takes 8 bits where no product comes before, outside its budget, which this one has to meet.
// - Any other op: errors of relative variance r make errors of relative variance r in the
//   gradients that it gives, as in every op that is linear in what it saved: w_n = mean R_n^2 / (6
//   mean x^2) * |g|^2 / N.
//
// As published, every tensor is packed, signs are 1-bit masks and nothing is rebuilt: keep.recipes
// false, keep.signs masks. Otherwise it works on what recipes leave. Codes that carry a sign have 2
// bits at least, whatever the average.
// On `meta` there are no values, so nothing is learned: every tensor keeps the average width, which
// its samples share equally. The bytes are those of a run before its first observation; later a run
// spends the same bits on average, up to the width of a sample. Peaks are those of an observed
// step. Tensors are known by SaveInfo::seq, as in adaptive_policy.h. An observed step makes
// gradients whole that would come in slices, at the price of some peak memory. Ref: Chen et al.
// 2021 (ActNN), section 4.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "autograd/observer.h"
#include "compress/policies/actnn_sensitivity.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/learner.h"

namespace frugal::compress {

// | level | activations                                                 |
// | L0    | raw                                                         |
// | L1    | what products read in 4 bits, all else raw                  |
// | L2    | 4 bits                                                      |
// | L3    | 2 bits on average, by sample and by tensor                  |
// | L4    | L3, packed bytes in a file                                  |
// | L5    | L4: the allocator here has no fragments that could be mended |
struct ActnnLevel {
  std::string_view name;
  int bits = 0;  // 0: raw
  bool mixed = false;
  bool products_only = false;
  bool offload = false;  // the maker wraps the policy
};
const ActnnLevel& parse_actnn_level(std::string_view name);  // Errors: unknown name

struct ActnnOptions {
  FixedPolicyOptions keep;  // its level does not count; its bits are those of L1 and L2, if not 0
  std::string_view level = "L3";
  double average = 0;  // bits per element of mixed levels, without metadata; 0: the level's
  int min_bits = 1, max_bits = 8;
  bool by_sample = true, by_tensor = true;
  int64_t interval = 50;  // steps between observations; the steps 1, 2, 4.. before it are, too
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class ActnnPolicy final : public SavePolicy,
                          public Learner,
                          public Adjustable,
                          private Codec,
                          private BackwardObserver {
 public:
  // Errors: an unknown level; an average, widths or an interval out of range; groups along
  // rows; those of FixedPolicy.
  explicit ActnnPolicy(const ActnnOptions& options);
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  bool lossy() const override { return keep_.lossy(); }
  bool rebuilds_signs() const override { return keep_.rebuilds_signs(); }
  int64_t slice_bytes() const override { return keep_.slice_bytes(); }
  BackwardObserver* observer() override { return observing_ ? this : nullptr; }

  // A tensor that the last step packed, with what is known of it.
  struct Item {
    uint64_t seq = 0;
    Shape shape;
    Use use;         // of who saved it, and
    std::string op;  // its name and slot
    int slot = 0;
    bool has_sign = false;  // its codes carry one, whose other class counts `slope`
    double slope = 0;
    double bits = 0;                    // on average over its samples
    std::optional<double> sensitivity;  // T: the variance added is T mean_n w_n S(b_n) / 6
    GroupRanges ranges;                 // where bits or sensitivities need them
    double mean_square = 0;             // for any other op
    double direct = 0, through = 0;     // of T, in this backward: readers of it, and of what
    double factor = 1;                  // is rebuilt from it, whose errors are so much larger
    bool is_read = false;               // by one of the two
    uint64_t pass = 0;
  };
  std::vector<Item> items() const;  // by seq
  // Sum of T w S / 6, or / 12 with dithered rounding, over the last step's tensors, with the bits
  // of the next.
  double predicted_variance() const;
  double average_bits() const;  // over the elements of the last step's tensors

  double average() const { return average_; }
  // Another average from now on, and with it widths. REQUIRES: no graph of this policy is alive.
  // Errors: outside the range of widths, or not whole at a level that is not mixed; a level that
  // keeps tensors raw.
  void set_average(double average);
  // The average; 0 at L0 and with nearest rounding.
  double fineness() const override {
    return options_.keep.rounding == Rounding::nearest ? 0 : average_;
  }
  Range fineness_range() const override;
  double set_fineness(double bits) override {
    set_average(bits);
    return average_;
  }

  // The average, sensitivities and bits, as of the last backward, and what else widths depend on:
  // shapes, signs, the ranges of samples, and which tensors the last step packed. Restoring drops
  // what was seen since; of no numbers, everything.
  std::vector<double> learned() const override;
  bool learns_at(uint64_t step) const override {
    return level_.mixed && options_.by_tensor && due(step);
  }
  void restore_learned(const std::vector<double>& numbers) override;

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  void before(const BackwardStep& step, const Tensor& dy) override;
  void after(const BackwardStep& step, const Grads& gradients) override;

  bool due(uint64_t step) const;
  int least_bits(const Item& item) const;
  StepVariance variance_of(const Item& item) const;
  // Above the least, of all its samples together; and how samples count.
  int64_t extra_bits(const Item& item, int64_t count) const;
  std::vector<double> weights_of(const Item& item, int64_t count) const;
  void read(const SavedTensor& slot, double amount);
  void scale_errors(const SavedTensor& slot, const Slots& slots);
  Item* find(uint64_t seq);
  void settle() const;
  double share_of_step() const;  // of its square: the variance of a rounding
  void allocate() const;

  ActnnOptions options_;
  const ActnnLevel& level_;
  double average_ = 0;
  FixedPolicy keep_;
  MixedQuantizer quantizer_;
  std::map<uint64_t, Decision::What> decisions_;  // of this step, by seq
  mutable std::map<uint64_t, Item> items_;
  uint64_t pass_ = 1;
  bool observing_ = false;
  mutable bool observed_ = false, finite_ = true;
  std::vector<uint64_t> chain_;  // what the last rebuilt tensor with several sources rests on
};

}  // namespace frugal::compress
