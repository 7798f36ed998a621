#include "core/print.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

namespace frugal {
namespace {

// An axis as it is printed: all of it, or so many elements at each end.
struct Shown {
  int64_t size = 0, edge = 0;
  bool whole() const { return edge == 0; }
  std::vector<int64_t> indices() const {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < size; ++i)
      if (whole() || i < edge || i >= size - edge) all.push_back(i);
    return all;
  }
};

class Printer {
 public:
  Printer(const Tensor& tensor, const PrintOptions& options) : tensor_(tensor), options_(options) {
    const bool shorten = tensor.numel() > options.threshold;
    for (const int64_t size : tensor.shape())
      axes_.push_back({size, shorten && size > 2 * options.edge ? options.edge : 0});
    collect(0, 0);
    if (is_floating(tensor.dtype())) choose_notation();
    for (size_t i = 0; i < numbers_.size(); ++i)
      width_ = std::max(width_, static_cast<int>(text(i).size()));
  }

  std::string str() {
    next_ = 0;
    return block(0, 1);
  }

 private:
  // The elements that are shown, in order.
  void collect(size_t axis, int64_t flat) {
    if (axis == axes_.size()) {
      if (is_floating(tensor_.dtype()))
        numbers_.push_back(tensor_.item(flat));
      else
        integers_.push_back(tensor_.item<int64_t>(flat)), numbers_.push_back(0);
      return;
    }
    for (const int64_t i : axes_[axis].indices()) collect(axis + 1, flat * axes_[axis].size + i);
  }

  void choose_notation() {
    double largest = 0, smallest = INFINITY;
    for (const double value : numbers_) {
      if (!std::isfinite(value) || value == 0) continue;
      largest = std::max(largest, std::abs(value));
      smallest = std::min(smallest, std::abs(value));
      whole_ = whole_ && value == std::trunc(value);
    }
    if (largest == 0) return;
    scientific_ = largest / smallest > 1000 || largest > 1e8 || (!whole_ && smallest < 1e-4);
  }

  std::string text(size_t i) const {
    if (tensor_.dtype() == DType::bool_) return integers_[i] != 0 ? "True" : "False";
    if (!is_floating(tensor_.dtype())) return std::to_string(integers_[i]);
    const double value = numbers_[i];
    if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    if (scientific_) return fmt::format("{:.{}e}", value, options_.precision);
    if (whole_) return fmt::format("{:.0f}.", value);
    return fmt::format("{:.{}f}", value, options_.precision);
  }

  std::string next() { return fmt::format("{:>{}}", text(next_++), width_); }

  // The part of the tensor from `axis` on, whose first character stands in column `column` - 1.
  std::string block(size_t axis, int column) {
    if (axis == axes_.size()) return next();
    std::vector<std::string> items;
    for (const int64_t i : axes_[axis].indices()) {
      if (!axes_[axis].whole() && i == axes_[axis].size - axes_[axis].edge)
        items.emplace_back(axis + 1 == axes_.size() ? " ..." : "...");
      items.push_back(block(axis + 1, column + 1));
    }
    const auto indent = static_cast<size_t>(column);
    if (axis + 1 < axes_.size()) {
      const std::string lines(axes_.size() - axis - 1, '\n');
      return fmt::format("[{}]", fmt::join(items, "," + lines + std::string(indent, ' ')));
    }
    const int in_line = std::max(1, (options_.width - column + 1) / (width_ + 2));
    std::string row = "[";
    for (size_t i = 0; i < items.size(); ++i) {
      if (i != 0)
        row += static_cast<int>(i) % in_line == 0 ? ",\n" + std::string(indent, ' ') : ", ";
      row += items[i];
    }
    return row + "]";
  }

  const Tensor& tensor_;
  const PrintOptions& options_;
  std::vector<Shown> axes_;
  std::vector<double> numbers_;
  std::vector<int64_t> integers_;
  bool whole_ = true, scientific_ = false;
  int width_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string to_string(const Tensor& tensor, const PrintOptions& options) {
  FRUGAL_CHECK(
      options.precision >= 0 && options.threshold >= 0 && options.edge > 0 && options.width >= 0,
      "[print] expected options of at least 0 and an edge of at least 1, got precision "
      "{}, threshold {}, edge {}, width {}",
      options.precision, options.threshold, options.edge, options.width);
  if (!tensor.defined()) return describe(tensor);
  if (tensor.device() == kMeta) return "a tensor without values, " + describe(tensor);
  if (tensor.numel() == 0) return "[]\n" + describe(tensor);
  return Printer(tensor, options).str() + "\n" + describe(tensor);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

}  // namespace frugal
