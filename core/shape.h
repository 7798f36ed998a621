// Shape: up to 8 extents, stored inline. Also used for strides (in elements).
#pragma once
#include <spdlog/fmt/fmt.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace frugal {

class Shape {
 public:
  static constexpr int kMaxDim = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents)
      : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents);  // Errors: more than 8 extents

  int dim() const { return dim_; }
  int64_t numel() const;  // 1 for a scalar
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return extents_[static_cast<size_t>(axis)]; }
  int64_t back() const { return extents_[static_cast<size_t>(dim_ - 1)]; }
  void push_back(int64_t extent);
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + dim_; }
  bool operator==(const Shape& other) const;
  std::string str() const;  // "[2, 3, 4]"

 private:
  std::array<int64_t, kMaxDim> extents_{};
  int dim_ = 0;
};

Shape contiguous_strides(const Shape& shape);

// Maps an axis, which may be negative, to [0, dim). Errors: outside [-dim, dim); the message names
// `op`.
int normalize_axis(const char* op, int axis, int dim);

// The shape to which both broadcast (NumPy's rule). Errors: extents that do not fit; the message
// names `op`.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

}  // namespace frugal

template <>
struct fmt::formatter<frugal::Shape> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const frugal::Shape& shape, Context& context) const {
    return fmt::formatter<std::string>::format(shape.str(), context);
  }
};
