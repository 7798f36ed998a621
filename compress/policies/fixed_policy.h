// Fixed policy: one width for every activation, with or without recipes.
//
// With recipes, an activation that its producer can rebuild exactly or without bias is not kept at
// all. A biased rebuild is never used. A rebuild whose bias is corrected is used from 4 bits on.
// With 0 bits all sources are raw, so rebuilt values are bit-equal. Recipes may build on recipes:
// the outputs of a stage of residual blocks are rebuilt together when backward enters the stage,
// and wait packed for their consumers.
#pragma once
#include <optional>

#include "compress/policies/adjustable.h"
#include "compress/quantize/quantize.h"
#include "core/option.h"

namespace frugal::compress {

// Where the exact signs of activation functions are kept.
//   codes: in the codes of the function's input or output, at no cost (quantize.h). Where there are
//          no such codes, in masks.
//   masks: 1 bit per element
enum class Signs : uint8_t { codes, masks };

struct FixedPolicyOptions {
  int bits = 4;  // bits per packed element; 0: everything is kept raw
  bool recipes = true;
  bool corrected = true;  // uses recipes whose bias is corrected, from 4 bits on
  Signs signs = Signs::codes;
  // How many elements may be rebuilt on the way to a tensor, as a multiple of the tensor's own.
  // They cost time once, and packed memory while backward is among them. 0: recipes start from kept
  // tensors alone.
  double chain = 16;
  // Activations of at most this many elements stay raw. They take little memory, and the input of a
  // classifier is among them, which quantizing hurts most. Ref: Liu et al. 2022 (GACT).
  // Groups by column also need kLeastRows rows (group_layout.h).
  int64_t min_elements = 16384;
  int64_t group = 256;  // see QuantizeOptions
  // Groups along rows mix channels: a channel of small values beside one of large values is lost.
  // They exist to compare with. Their codes carry no sign, so masks
  // are kept even with Signs::codes. Ref: Liu et al. 2022 (GACT), whose groups are neighbours in
  // memory: GroupAxis::nchw.
  GroupAxis axis = GroupAxis::column;
  // Backward takes packed and rebuilt tensors in slices of about this many bytes. 0: whole. Not
  // set: as many as suit the device (make_policy.h); a policy that is made without one takes
  // SavePolicy::kSliceBytes.
  std::optional<int64_t> slice_bytes = {};
  // Not set: what suits the device (make_policy.h); a policy that is made without one rounds
  // stochastically, as published.
  std::optional<Rounding> rounding = {};
  uint64_t seed = 0;

  int64_t slice_bytes_here() const { return slice_bytes.value_or(SavePolicy::kSliceBytes); }
  Rounding rounding_here() const { return rounding.value_or(Rounding::stochastic); }
  bool operator==(const FixedPolicyOptions&) const = default;
  // Without `bits`, whose meaning depends on the policy (choice.h).
  static std::vector<options::Option<FixedPolicyOptions>> list();
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class FixedPolicy final : public SavePolicy, public Adjustable {
 public:
  // Errors: min_elements, slice_bytes or chain below 0; those of Quantizer.
  explicit FixedPolicy(const FixedPolicyOptions& options = {});
  bool lossy() const override { return bits_ > 0; }
  bool decides_by_shape() const override { return true; }
  void add_roles(PolicyRoles& roles) override;
  int64_t slice_bytes() const override { return slice_bytes_; }
  // Four kinds of tensors stay raw: the batch (its storage has the category `input` and is alive
  // anyway, unless SaveInfo::released is set), other dtypes, small tensors, and tensors of fewer
  // than kLeastRows rows of [rows, C], for which codes in groups of a channel would not pay.
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  int bits() const { return bits_; }                  // 0: tensors stay raw
  const Quantizer& codec() const { return *codec_; }  // unused without bits
  // Sets the width from now on. REQUIRES: no graph of this policy is alive. Errors: not in 1..16; a
  // policy that keeps tensors raw.
  void set_bits(int bits);

  // The width; 0 if the policy keeps tensors raw or rounds to nearest.
  double fineness() const override {
    return codec_->options().rounding == Rounding::nearest ? 0 : bits_;
  }
  Range fineness_range() const override { return {}; }
  double set_fineness(double bits) override {
    set_bits(static_cast<int>(bits));
    return bits_;
  }

 private:
  bool pays(const Tensor& value) const;
  bool may_replay(const SaveInfo& info, const Tensor& value) const;
  int bits_;
  bool recipes_, corrected_;
  Signs signs_;
  double chain_;
  int64_t min_elements_, slice_bytes_;
  std::unique_ptr<Quantizer> codec_;
};

}  // namespace frugal::compress
