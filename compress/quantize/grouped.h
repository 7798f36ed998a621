// Grouped: a packed tensor whose payload is groups of codes, laid out as group_layout.h says.
#pragma once
#include <vector>

#include "compress/offload/movable.h"
#include "compress/quantize/group_layout.h"

namespace frugal::compress {

class Grouped : public Movable {
 public:
  struct Part {
    int64_t offset = 0;  // where it begins in the payload
    GroupLayout layout;
  };
  // Ordered by offset, without overlap. May be called while the payload is away.
  virtual std::vector<Part> parts() const = 0;
  virtual const Tensor& payload() const = 0;
  Grouped* grouped() final { return this; }
  int64_t coded_bytes() const final { return payload().nbytes(); }
};

// Errors: not a mask of the tensor on its device (ops/dense/bitmask.h); a slope that is not finite.
void check_sign(const char* op, const Sign& sign, const Tensor& tensor);

}  // namespace frugal::compress
