// Errors about options of training have the class of those about networks.
#pragma once
#include "core/error.h"

namespace frugal::train {

using frugal::OptionError;

}  // namespace frugal::train
