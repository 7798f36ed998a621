// Names of options that several optimizers share. An option that one optimizer has is beside its
// struct.
#pragma once
#include "core/option.h"

namespace frugal::optim::keys {

using by_name::Key;
namespace range = by_name::range;

// What Optimizer::set_momentum() sets.
inline constexpr Key kMomentum{"momentum", range::below(0, 1), "sgd, sgd_8bit, lars: momentum."};
inline constexpr Key kBeta1{"beta1", range::below(0, 1), "adam and its kin: decay of the mean."};

inline constexpr Key kBeta2{"beta2", range::below(0, 1), "The same of the mean square."};
// A smaller number is 0 in f32, by which an element without a gradient would be divided.
inline constexpr double kLeastEps = 1e-30;
inline constexpr Key kEps{"eps", range::number(kLeastEps, 1),
                          "The same: added to the root of the mean square."};

}  // namespace frugal::optim::keys
