// Fixed policy: one width for every activation, with or without recipes.
//
// With recipes, an activation that its producer can rebuild exactly or without bias is not kept at
// all. A biased rebuild is never used. A rebuild whose bias is corrected needs sources of at least
// 4 bits. With 2 and 3 bits, tensors that such a rebuild reads (SaveInfo::curved) have 4 bits: gelu
// then keeps 4 bits of its input, and its output is rebuilt. Both in 3 bits would take more.
// With 0 bits all sources are raw, so rebuilt values are bit-equal. Recipes may build on recipes:
// the outputs of a stage of residual blocks are rebuilt together when backward enters the stage,
// and wait packed for their consumers.
#pragma once
#include <map>
#include <memory>

#include "autograd/saved_tensor.h"
#include "compress/policies/adjustable.h"
#include "compress/policies/policy_options.h"

namespace frugal::compress {

class Quantizer;

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class FixedPolicy final : public SavePolicy, public Adjustable {
 public:
  // Errors: min_elements, slice_bytes or chain below 0; those of Quantizer.
  explicit FixedPolicy(const FixedPolicyOptions& options = {});
  ~FixedPolicy() override;
  bool lossy() const override { return bits_ > 0; }
  bool decides_by_shape() const override { return true; }
  bool packs_recomputed() const override { return pack_recomputed_; }
  void add_roles(PolicyRoles& roles) override;
  int64_t slice_bytes() const override { return slice_bytes_; }
  // Four kinds of tensors stay raw: the batch (its storage has the category `input` and is alive
  // anyway, unless SaveInfo::released is set), other dtypes, small tensors, and tensors of fewer
  // than kLeastRows rows of [rows, C], for which codes in groups of a channel would not pay.
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  // How many bits recipes need that read the tensor: kCorrectedBits where their bias is corrected.
  // 0: any.
  int least_bits(const SaveInfo& info) const;
  static constexpr int kCorrectedBits = 4;

  int bits() const { return bits_; }                  // 0: tensors stay raw
  const Quantizer& codec() const { return *codec_; }  // unused without bits
  // Sets the width from now on. REQUIRES: no graph of this policy is alive. Errors: not in 1..16; a
  // policy that keeps tensors raw.
  void set_bits(int bits);

  // The width; 0 if the policy keeps tensors raw or rounds to nearest.
  double fineness() const override;
  Range fineness_range() const override { return {}; }
  double set_fineness(double bits) override {
    set_bits(static_cast<int>(bits));
    return bits_;
  }

 private:
  bool corrects(const SaveInfo& info) const;
  bool pays(const Tensor& value) const;
  const Quantizer& codec_of(int bits);
  bool may_rebuild(const SaveInfo& info, const Tensor& value) const;
  int bits_;
  bool recipes_, corrected_;
  Signs signs_;
  bool pack_recomputed_;
  double chain_;
  int64_t min_elements_, slice_bytes_;
  std::unique_ptr<Quantizer> codec_;
  std::map<int, Quantizer> wider_;  // for tensors that recipes need in more bits
};

}  // namespace frugal::compress
