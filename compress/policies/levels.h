// Names of choices: the levels that the papers give to sets of options, and presets. This table is
// the only place that says what each name stands for.
//
// A level's name is read within its policy: L3 of GACT and L3 of ActNN are different levels.
//
// | gact | bits | also                    | actnn | bits | also                                |
// | L0   | raw  |                         | L0    | raw  |                                     |
// | L1   | 4    |                         | L1    | 4    | only what products read, rest raw   |
// | L1.1 | 8    |                         | L2    | 4    |                                     |
// | L1.2 | 2    |                         | L2.5  | 2    | widths by tensor                    |
// | L2   | 4    | widths by tensor        | L3    | 2    | widths by tensor and by sample      |
// | L2.1 | 3    | widths by tensor        | L4    | 2    | as L3, packed bytes in a file       |
// | L2.2 | 2    | widths by tensor        | L5    |      | is L4                               |
// | L3   | 4    | as L2, packed bytes in a file                                                |
// | CB1  | 4    | checkpointed blocks; their inputs are kept raw, with gact_paper packed       |
// | CB2  |      | is CB1                                                                       |
//
// With widths by tensor, the bits are the average. The papers' CB2 computes attention in tiles,
// which this framework always does. Their L5 mends fragments of the allocator, and the allocator
// here has none. So both are other names of the level before. A level says widths alone. All other
// options, recipes among them, have their defaults. What a paper did with every tensor is a preset.
// Ref: Liu et al. 2022 (GACT), section 5.1; Chen et al. 2021 (ActNN), section 5.
#pragma once
#include <span>
#include <string_view>

#include "compress/policies/choice.h"
#include "compress/policies/policy_kind.h"

namespace frugal::compress {

struct Named {
  enum Of : uint8_t { level, preset, paper_preset } of = level;  // paper_preset: to compare with
  PolicyKind policy = PolicyKind::gact;
  std::string_view name;
  std::string_view summary;
  Choice choice = {};    // `offload` is not set, because it needs a folder
  bool offload = false;  // packed bytes go to a file
  bool checkpointing = false;
  std::string_view same_as = {};  // this level is only another name of that one
};

// All rows: the levels of each policy, then the presets.
std::span<const Named> named_choices();
// The levels of a policy, also those that are names of others. No levels: acgc and budget.
std::span<const Named> levels(PolicyKind policy);
// Presets, from no change of results to the least memory, and then the methods of papers.
std::span<const Named> presets();
// The level of that name, never one with same_as. Errors: unknown name, listing the levels.
const Named& level(std::string_view name, PolicyKind policy = PolicyKind::gact);

}  // namespace frugal::compress
