// Printing tensors: std::cout << x, fmt::format("{}", x), to_string(x).
//
//   [[1.0000, 2.5000],
//    [3.0000, 4.0000]]
//   [2, 2] f32 on cpu
//
// The layout is PyTorch's: aligned columns, scientific notation where values span more than three
// orders of magnitude, "..." in the middle of long axes of large tensors. The last line is
// describe(). A tensor on CUDA is read element by element, which waits for its device.
#pragma once
#include <iosfwd>
#include <string>

#include "core/tensor.h"

namespace frugal {

struct PrintOptions {
  int precision = 4;         // digits after the point
  int64_t threshold = 1000;  // tensors of more elements are shortened
  int64_t edge = 3;          // elements at each end of a shortened axis
  int width = 80;            // characters of a line
};

// Any dtype, shape and device. An undefined tensor, one without elements and one on `meta` have a
// text, too.  Errors: a negative option.
std::string to_string(const Tensor& tensor, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace frugal

template <>
struct fmt::formatter<frugal::Tensor> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const frugal::Tensor& tensor, Context& context) const {
    return fmt::formatter<std::string>::format(frugal::to_string(tensor), context);
  }
};
