// ByteTrie: texts and their values, found by their first bytes. Internal to data/text.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace frugal::data {

// The longest text that a trie of tokens takes: it bounds the time that a place of a text costs.
constexpr size_t kLongestToken = 4096;

// Thread safety: const.
class ByteTrie {
 public:
  ByteTrie();
  // A text that is inserted again gets the new value. Errors: an empty text, or one that is longer
  // than kLongestToken. REQUIRES: value >= 0.
  void insert(std::string_view text, int32_t value);

  // A place in the trie: what follows the bytes read so far.
  using Node = uint32_t;
  static constexpr Node kRoot = 0, kNone = UINT32_MAX;
  // The place behind `byte`; kNone: no text goes on so.
  Node next(Node node, char byte) const;
  int32_t value(Node node) const { return values_[node]; }  // -1: no text ends here
  // Bytes of the longest of its texts with which `text` begins; 0: it begins with none.
  size_t longest(std::string_view text) const;
  // Whether any text begins with the byte.
  bool begins(char byte) const { return begins_[static_cast<uint8_t>(byte)]; }

 private:
  struct Slot {
    uint64_t key;  // node << 8 | byte, plus 1; 0: free
    Node next;
  };
  size_t slot_of(uint64_t key) const;
  void grow();

  std::vector<int32_t> values_;
  std::vector<Slot> slots_;  // open addressing; a power of two
  bool begins_[256] = {};
};

}  // namespace frugal::data
