// Fixed policy: one width for every activation, with or without recipes.
//
// With recipes, an activation that its producer can rebuild exactly or without bias is not kept at
// all; a biased rebuild is never used, one whose bias is corrected from 4 bits on. At L0 all
// sources are raw, so rebuilt values are bit-equal. Recipes chain: the outputs of a stage of
// residual blocks are rebuilt together when backward enters it, and wait packed for their
// consumers.
#pragma once
#include <string_view>

#include "compress/policies/adjustable.h"
#include "compress/policies/levels.h"
#include "compress/quantize/quantize.h"

namespace frugal::compress {

// Where the exact signs of activation functions are kept.
//   codes:   in the codes of the function's input or output, at no cost (quantize.h); else
//   masks:   1 bit per element
//   rebuilt: nowhere, they are taken from rebuilt values: biased, to compare with
enum class Signs : uint8_t { codes, masks, rebuilt };

struct FixedPolicyOptions {
  std::string_view level = "L1";  // see levels.h; of an adaptive one, the average
  int bits = 0;                   // instead of the level's, where not 0
  bool recipes = true;
  bool corrected = true;  // recipes whose bias is corrected, from 4 bits on
  Signs signs = Signs::codes;
  // A recipe may pass through so many times its own elements that must be rebuilt on the way: they
  // cost time once, and packed memory while backward is among them. 0: recipes start from what is
  // kept.
  double chain = 16;
  // Activations of at most this many elements stay raw: they are small, and the input of a
  // classifier, which quantizing hurts most, is among them. Ref: Liu et al. 2022 (GACT).
  int64_t min_elements = 16384;
  int64_t group = 256;  // see QuantizeOptions
  // Groups along rows mix channels, to compare with. Codes carry no sign then: with Signs::codes,
  // masks are kept. Ref: Chen et al. 2021 (ActNN), whose 2 bits along rows do not train.
  GroupAxis axis = GroupAxis::column;
  // Backward takes packed and rebuilt tensors in slices of about so many bytes; 0: whole.
  int64_t slice_bytes = SavePolicy::kSliceBytes;
  Rounding rounding = Rounding::stochastic;  // as published; of `frugal` itself: dithered
  uint64_t seed = 0;
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class FixedPolicy final : public SavePolicy, public Adjustable {
 public:
  explicit FixedPolicy(const FixedPolicyOptions& options = {});  // Errors: unknown level
  bool lossy() const override { return bits_ > 0; }
  bool rebuilds_signs() const override { return signs_ == Signs::rebuilt; }
  int64_t slice_bytes() const override { return slice_bytes_; }
  // Raw: the batch (its storage is of category `input` and alive anyway), other dtypes, small ones.
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  int bits() const { return bits_; }                  // 0: raw
  const Quantizer& codec() const { return *codec_; }  // unused without bits
  // From now on. REQUIRES: no graph of this policy is alive. Errors: not in 1..16; a policy that
  // keeps tensors raw.
  void set_bits(int bits);

  // Its width; 0 if it keeps tensors raw or rounds to nearest.
  double fineness() const override {
    return codec_->options().rounding == Rounding::nearest ? 0 : bits_;
  }
  Range fineness_range() const override { return {}; }
  double set_fineness(double bits) override {
    set_bits(static_cast<int>(bits));
    return bits_;
  }

 private:
  bool may_replay(const SaveInfo& info, const Tensor& value) const;
  int bits_;
  bool recipes_, corrected_;
  Signs signs_;
  double chain_;
  int64_t min_elements_, slice_bytes_;
  std::unique_ptr<Quantizer> codec_;
};

}  // namespace frugal::compress
