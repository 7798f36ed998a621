// Fixed policy: one width for every activation, with or without recipes.
//
// | level | activations            |
// | L0    | raw                    |
// | L1    | 4 bits                 |
// | L1.1  | 8 bits                 |
// | L1.2  | 2 bits                 |
//
// With recipes, an activation that its producer can rebuild exactly or without bias is not kept at
// all; a biased rebuild is never used. At L0 all sources are raw, so rebuilt values are bit-equal.
#pragma once
#include <span>
#include <string_view>

#include "compress/quantize.h"

namespace frugal::compress {

struct Level {
  std::string_view name;
  int bits = 0;  // 0: raw
  std::string_view summary;
};
std::span<const Level> levels();
const Level& parse_level(std::string_view name);  // Errors: unknown name, listing the levels

struct FixedPolicyOptions {
  std::string_view level = "L1";
  bool recipes = true;
  // Activations of at most this many elements stay raw: they are small, and the input of a
  // classifier, which quantizing hurts most, is among them. Ref: Liu et al. 2022 (GACT).
  int64_t min_elements = 16384;
  int64_t group = 256;  // see QuantizeOptions
  Rounding rounding = Rounding::stochastic;
  uint64_t seed = 0;
};

// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
class FixedPolicy final : public SavePolicy {
 public:
  explicit FixedPolicy(const FixedPolicyOptions& options = {});  // Errors: unknown level
  // Raw: the batch (its storage is of category `input` and alive anyway), other dtypes, small ones.
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  const Level& level() const { return level_; }
  const Quantizer& codec() const { return codec_; }  // unused at L0

 private:
  Level level_;
  bool recipes_;
  int64_t min_elements_;
  Quantizer codec_;
};

}  // namespace frugal::compress
