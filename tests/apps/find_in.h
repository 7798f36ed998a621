// find_in() for tests of configurations.
#pragma once
#include "tests/train/find_in.h"

namespace frugal::apps {
using train::find_in;
}
