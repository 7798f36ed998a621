// CodedSizes: how many bytes tensors took when they were coded by entropy. Plans of later steps use
// it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace frugal::compress {

// The most bytes that each tensor took at each width, over the present period and the one before.
// So old values are forgotten, and a plan is not made from a lucky step.
class CodedSizes {
 public:
  struct Size {
    int bits = 0;
    int64_t bytes = 0;
  };
  void saw(uint64_t seq, Size size);
  // At the widest seen width that has at most `bits` bits.
  std::optional<Size> most(uint64_t seq, int bits) const;
  void next_period();
  bool empty() const { return seen_.empty(); }

  // For checkpoints: with equal entries, plans are equal.
  struct Entry {
    uint64_t seq = 0;
    int bits = 0;
    int64_t now = 0,
            before = 0;  // the most bytes of this period and of the one before; 0: not seen
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries() const;
  // Errors: bits outside 1 to 16, bytes below 0.
  void restore(const std::vector<Entry>& entries);

 private:
  struct Seen {
    int64_t now = 0, before = 0;  // 0: not seen
  };
  std::map<uint64_t, std::map<int, Seen>> seen_;
};

}  // namespace frugal::compress
