// CodedSizes: what was seen of tensors coded by their entropy, for plans of the steps to come.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace frugal::compress {

// The most bytes that each tensor took at each width, over this period and the one before, so that
// what was long ago is forgotten and no plan is made from a lucky step.
class CodedSizes {
 public:
  struct Size {
    int bits = 0;
    int64_t bytes = 0;
  };
  void saw(uint64_t seq, Size size);
  // At the widest width of at most `bits` that was seen.
  std::optional<Size> most(uint64_t seq, int bits) const;
  void next_period();
  // For checkpoints: with equal numbers, plans are equal. Errors: not of that form.
  std::vector<double> numbers() const;
  void restore(std::span<const double> numbers);

 private:
  struct Seen {
    int64_t now = 0, before = 0;  // 0: not seen
  };
  std::map<uint64_t, std::map<int, Seen>> seen_;
};

}  // namespace frugal::compress
