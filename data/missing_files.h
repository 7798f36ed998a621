// MissingFiles: a place without the files that a data set begins with, so that another place may be
// meant. Files that are there and wrong are plain errors.
#pragma once
#include "core/error.h"

namespace frugal::data {

class MissingFiles : public Error {
 public:
  using Error::Error;
};

}  // namespace frugal::data
