// Names of options that several optimizers share. An option that one optimizer has is beside its
// struct.
#pragma once
#include "core/option.h"

namespace frugal::optim::keys {

using by_name::Key;
namespace range = by_name::range;

// What Optimizer::set_momentum() sets.
inline constexpr Key kMomentum{"momentum", range::below(0, 1), "sgd, sgd_8bit, lars: momentum."};
inline constexpr Key kBeta1{"beta1", range::below(0, 1),
                            "adam and its kin: decay of the mean. lion: the share of the mean in "
                            "the direction."};
inline constexpr Key kBeta2{"beta2", range::below(0, 1),
                            "adam and its kin: decay of the mean square. lion: decay of the mean."};
inline constexpr Key kEps{"eps", range::divisor(1),
                          "adam and its kin: added to the root of the mean square."};

}  // namespace frugal::optim::keys
