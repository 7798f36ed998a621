// NumberReader: reads the numbers of a Learner, each within its limits.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "core/shape.h"

namespace frugal::compress {

class NumberReader {
 public:
  static constexpr double kLargest = 0x1p53;  // of whole numbers

  // owner: who learned them, for messages.
  NumberReader(const char* owner, std::span<const double> numbers)
      : owner_(owner), numbers_(numbers) {}
  bool done() const { return at_ == numbers_.size(); }
  // Errors: no more numbers; one outside the limits, or NaN.
  double next(double least, double most) {
    FRUGAL_CHECK(at_ < numbers_.size() && numbers_[at_] >= least && numbers_[at_] <= most,
                 "[{}] expected {} to {} as number {} of what was learned, got {}", owner_, least,
                 most, at_, at_ < numbers_.size() ? fmt::format("{}", numbers_[at_]) : "none");
    return numbers_[at_++];
  }
  // Errors: the same; not a whole number.
  int64_t whole(double least, double most) {
    const double number = next(least, most);
    FRUGAL_CHECK(number == std::trunc(number),
                 "[{}] expected a whole number as number {} of what was learned, got {}", owner_,
                 at_ - 1, number);
    return static_cast<int64_t>(number);
  }
  bool flag() { return whole(0, 1) == 1; }
  // A shape: how many extents, and these. Errors: the same; too many elements.
  Shape shape() {
    Shape shape;
    double elements = 1;
    for (int64_t left = whole(0, Shape::kMaxDim); left > 0; --left) {
      shape.push_back(whole(0, kLargest));
      elements *= static_cast<double>(shape.back());
    }
    FRUGAL_CHECK(elements <= kLargest, "[{}] expected a shape of at most 2^53 elements, got {}",
                 owner_, shape);
    return shape;
  }

 private:
  const char* owner_;
  std::span<const double> numbers_;
  size_t at_ = 0;
};

}  // namespace frugal::compress
