// Levels: the names that the papers give to sets of options. A name is read within its policy: L3
// of GACT and L3 of ActNN are different levels, and here is the only place that says what each is.
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
// | CB1  | 4    | checkpointed blocks, of which the inputs are kept raw                        |
// | CB2  |      | is CB1                                                                       |
//
// With widths by tensor, `bits` is the average. The papers' CB2 computes attention in tiles, which
// this framework always does. Their L5 mends fragments of the allocator, and the allocator here has
// none. So both are other names of the level before.
// Ref: Liu et al. 2022 (GACT), section 5.1; Chen et al. 2021 (ActNN), section 5.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace frugal::compress {

enum class LevelsOf : uint8_t { gact, actnn };

struct Level {
  std::string_view name;
  int bits = 0;  // 0: raw
  std::string_view summary;
  bool adaptive = false;  // each tensor has its own width, and `bits` is the average
  bool by_sample = true;  // adaptive with ActNN: each sample has its own width, too
  bool offload = false;   // packed bytes go to a file
  bool checkpointing = false;
  bool products_only = false;     // what no product reads stays raw
  std::string_view same_as = {};  // this level is only another name of that one
};
// The list also has the names of other levels.
std::span<const Level> levels(LevelsOf policy);
// The options that a name stands for, never one with same_as. Errors: unknown name, listing the
// levels.
const Level& level(std::string_view name, LevelsOf policy = LevelsOf::gact);

}  // namespace frugal::compress
