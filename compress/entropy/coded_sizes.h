// CodedSizes: what was seen of tensors coded by their entropy, for plans of the steps to come.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
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
