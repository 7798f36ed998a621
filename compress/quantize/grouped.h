// Grouped: a packed tensor whose payload is groups of codes, laid out as group_layout.h says.
#pragma once
#include <vector>

#include "compress/offload/movable.h"
#include "compress/quantize/group_layout.h"

namespace frugal::compress {

class Grouped : public Movable {
 public:
  struct Part {
    int64_t offset = 0;  // in the payload
    GroupLayout layout;
  };
  // Ordered by offset, without overlap. May be called while the payload is away.
  virtual std::vector<Part> parts() const = 0;
  virtual const Tensor& payload() const = 0;
};

}  // namespace frugal::compress
