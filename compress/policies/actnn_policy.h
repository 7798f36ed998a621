// ActNN: bits of each tensor and of each sample by analytic sensitivities, for any model.
//
// In the forward pass, the samples of a tensor share its bits by the squared ranges of their
// groups. Every `interval` steps the backward pass is observed: norms of gradients tell what each
// tensor's rounding adds to the gradient's variance, and the tensors share the budget by that
// (compress/policies/allocate.h).
//
// - A tensor that products read (Use::product) has w_n = fan / 6 * mean R_n^2 * |dy|^2 / N
//   (actnn_sensitivity.h), summed over its readers. |dy|^2 is that of the whole batch, a moving
//   average over the observed steps (as published: that of the last one), and samples differ only
//   in their ranges.
// - With use_gradient, samples of such a tensor differ in |dy_n|^2, too: what each sample had in
//   earlier epochs, averaged by 0.5 over the observed steps that it was in. A sample that was in
//   none has the mean of the others of its batch. The samples of a batch are named by
//   set_samples(); without names, or where the leading axis of a tensor is no multiple of them,
//   nothing differs.
//   Samples of fewer rows than a group share groups with others of their width, which then may have
//   other ranges: this can cost more than the gradients gain.
// - If a reader's operand is rebuilt, the reader counts for the tensors that the operand is rebuilt
//   from. A normalization between them scales their errors, channel by channel, by (weight *
//   invstd)^2.
// - A tensor that only a normalization reads has no sensitivity. It gets the bits of the nearest
//   tensor before it that has one, or the average if there is none, and its samples share them by
//   their ranges. The average counts it. As published, the average does not count such tensors, and
//   those of a normalization before all products take 8 bits: norms_outside.
// - For any other op, errors of relative variance r are taken to make errors of relative variance r
//   in the gradients that the op gives. This holds for every op that is linear in what it saved:
//   w_n = mean R_n^2 / (6 mean x^2) * |g|^2 / N.
//
// As published, every tensor is packed, signs are 1-bit masks and nothing is rebuilt: keep.recipes
// is false, keep.signs is masks. With recipes, the policy packs the tensors that are not rebuilt.
// Codes that carry a sign have at least 2 bits, whatever the average. Some rebuilds
// correct their bias (FixedPolicy::corrects). The tensors that they read have one width for all
// samples: the average, rounded up, but at least 4 bits. The average does not count these tensors.
//
// On `meta` there are no values, so nothing is learned: every tensor keeps the average width, which
// its samples share equally. The bytes are those of a run before its first observation. Later, a
// run spends the same bits on average, up to the width of a sample. Peaks are those of an observed
// step. Tensors are known by SaveInfo::seq, as in adaptive_policy.h. An observed step makes
// gradients whole that would come in slices, which costs some peak memory.
// Ref: Chen et al. 2021 (ActNN), section 4.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "autograd/observer.h"
#include "compress/policies/actnn_sensitivity.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/learner.h"
#include "compress/policies/per_sample.h"
#include "compress/policies/policy_options.h"

namespace frugal::compress {

// What widths of later steps depend on.
struct ActnnState {
  // The version of the checkpoint format. Version 1 lacks first_norm, version 2 lacks gradients.
  static constexpr int kVersion = 3;
  struct Tensor {
    uint64_t seq = 0;
    double bits = 0;  // the mean over its samples
    std::optional<double> sensitivity;
    bool in_last_step = false;  // the last step packed it
    bool has_sign = false;      // its codes carry a sign
    double slope = 0;           // Sign::slope; 0 without a sign
    bool first_norm = false;    // a normalization reads it, before the first product
    Shape shape;
    std::vector<double> ranges;  // GroupRanges::samples
  };
  double average = 0;
  std::vector<Tensor> tensors;  // by seq
  // With use_gradient: by seq, the squared norm of the gradient of each sample, by its index; 0: it
  // was not seen.
  std::map<uint64_t, std::vector<float>> gradients;

  Learned write() const;
  static ActnnState read(const Learned& learned);  // Errors: see Learner
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class ActnnPolicy final : public SavePolicy,
                          public Learner,
                          public Adjustable,
                          public PerSample,
                          private Codec,
                          private BackwardObserver {
 public:
  // Errors: an average, widths, an interval or a momentum out of range; groups along rows;
  // use_gradient without mixed widths by sample; those of FixedPolicy.
  explicit ActnnPolicy(const ActnnOptions& options);
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  bool lossy() const override { return keep_.lossy(); }
  int64_t slice_bytes() const override { return keep_.slice_bytes(); }
  BackwardObserver* observer() override { return observing_ ? this : nullptr; }
  void add_roles(PolicyRoles& roles) override;

  // A tensor that the last step packed, and what is known about it.
  struct Item {
    uint64_t seq = 0;
    Shape shape;
    Use use;                            // how the op uses the tensor
    std::string op;                     // name of the op that saved the tensor
    int slot = 0;                       // the op's slot that holds the tensor
    bool has_sign = false;              // its codes carry a sign
    double slope = 0;                   // Sign::slope; 0 without a sign
    bool first_norm = false;            // a normalization reads it, before the first product
    double bits = 0;                    // the mean over its samples
    std::optional<double> sensitivity;  // T: the variance added is T mean_n w_n S(b_n) / 6
    GroupRanges ranges;                 // known where bits or sensitivities need them
    double mean_square = 0;             // the mean square of its values, for ops of other kinds
    // Parts of T in this backward pass. direct: from ops that read this tensor. through: from ops
    // that read tensors that are rebuilt from it. factor: how much a normalization between the two
    // amplifies squared errors.
    double direct = 0, through = 0;
    double factor = 1;
    std::vector<double> direct_of, through_of;  // the parts of each sample, with use_gradient
    bool is_read = false;                       // `direct` or `through` was added to
    uint64_t pass = 0;                          // pass_ when it was last packed
  };
  std::vector<Item> items() const;  // by seq
  // The sum of T w S / 6, or / 12 where rounding is not stochastic, over the tensors of the last
  // step at the bits of the next step.
  double predicted_variance() const;
  double average_bits() const;  // over the elements of the last step's tensors

  double average() const { return average_; }
  // Sets another average from now on, and widths with it. REQUIRES: no graph of this policy is
  // alive. Errors: outside the range of widths, or not whole where widths are not mixed; a policy
  // that keeps tensors raw.
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

  // The state after the last backward pass. Restoring drops what was seen since.
  ActnnState state() const;
  void restore(const ActnnState& state);  // Errors: an average that the options do not allow
  Learned learned() const override { return state().write(); }
  bool learns_at(uint64_t step) const override {
    return options_.mixed && (options_.by_tensor || options_.use_gradient) && due(step);
  }
  void restore_learned(const Learned& learned) override;
  // Averages sensitivities and bits.  Errors: use_gradient, of which each rank knows its own
  // samples alone.
  Learned joined(const std::vector<Learned>& of_ranks) const override;
  void set_samples(const Tensor& samples) override;

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  void before(const BackwardStep& step, const Tensor& dy) override;
  void after(const BackwardStep& step, const Grads& gradients) override;

  bool due(uint64_t step) const;
  int least_bits(const Item& item) const;
  double usual_bits(const Item& item) const;  // bits of a tensor without a sensitivity
  StepVariance variance_of(const Item& item) const;
  // extra_bits: the bits that all samples of the tensor together have above the least. weights_of:
  // how much each sample counts.
  int64_t extra_bits(const Item& item, int64_t count) const;
  std::vector<double> weights_of(const Item& item, int64_t count) const;
  // Adds to the tensors that `slot` rests on: `fan` times the squared norm of the gradient, also of
  // each sample, where these are known.
  void read(const SavedTensor& slot, double fan, double norm, const std::vector<double>& norms);
  std::vector<double> norms_of_samples(const Tensor& dy) const;
  // What the samples of a tensor count by their gradients, 1 on average; empty: nothing is known.
  std::vector<double> gradient_weights(const Item& item, const Samples& samples) const;
  void remember(const Item& item) const;  // stores the gradients of its samples
  void scale_errors(const SavedTensor& slot, const Slots& slots);
  Item* find(uint64_t seq);
  void settle() const;
  double share_of_step() const;  // the variance of a rounding, divided by its squared step
  void allocate() const;

  ActnnOptions options_;
  double average_ = 0;
  FixedPolicy keep_;
  MixedQuantizer quantizer_;
  std::map<uint64_t, Decision::What> decisions_;  // decisions of this step, by seq
  // With norms_outside, by seq: the value of Item::first_norm in this step.
  std::map<uint64_t, bool> first_norms_;
  mutable std::map<uint64_t, Item> items_;
  uint64_t pass_ = 1;
  bool observing_ = false, after_product_ = false;  // has a product saved something in this pass?
  mutable bool observed_ = false, finite_ = true;
  std::vector<int64_t> samples_;  // indices of this batch's samples; empty: not known
  mutable std::map<uint64_t, std::vector<float>> gradients_;  // see ActnnState
  std::vector<uint64_t> chain_;  // what the last rebuilt tensor with several sources rests on
};

}  // namespace frugal::compress
