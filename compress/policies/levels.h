// GACT's levels: what each does with activations. Ref: Liu et al. 2022 (GACT), section 5.1.
//
// | level | activations                                   | level | activations                |
// | L0    | raw                                           | L2    | 4 bits on average          |
// | L1    | 4 bits                                        | L2.1  | 3 bits on average          |
// | L1.1  | 8 bits                                        | L2.2  | 2 bits on average          |
// | L1.2  | 2 bits                                        | L3    | L2, packed bytes in a file |
// | CB1   | L1 outside of checkpointed blocks, of which the inputs are kept raw                |
// | CB2   | CB1 with attention in tiles, which here it always is                               |
#pragma once
#include <span>
#include <string_view>

namespace frugal::compress {

struct Level {
  std::string_view name;
  int bits = 0;  // 0: raw
  std::string_view summary;
  bool adaptive = false;  // bits are an average: widths follow measured sensitivity
  bool offload = false;
  bool checkpointing = false;
};
std::span<const Level> levels();
const Level& parse_level(std::string_view name);  // Errors: unknown name, listing the levels

}  // namespace frugal::compress
