#include "data/text/hub/byte_trie.h"

#include "core/error.h"

namespace frugal::data {

ByteTrie::ByteTrie() : values_(1, -1), slots_(64) {}

size_t ByteTrie::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t at = (key * 0x9e3779b97f4a7c15) >> 20 & mask;
  while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

void ByteTrie::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.key != 0) slots_[slot_of(slot.key)] = slot;
}

ByteTrie::Node ByteTrie::next(Node node, char byte) const {
  const uint64_t key = (uint64_t{node} << 8 | static_cast<uint8_t>(byte)) + 1;
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == 0 ? kNone : slot.next;
}

size_t ByteTrie::longest(std::string_view text) const {
  if (text.empty() || !begins(text[0])) return 0;
  size_t length = 0;
  Node node = kRoot;
  for (size_t at = 0; at < text.size();) {
    node = next(node, text[at++]);
    if (node == kNone) break;
    if (value(node) >= 0) length = at;
  }
  return length;
}

void ByteTrie::insert(std::string_view text, int32_t value) {
  FRUGAL_ASSERT(value >= 0);
  FRUGAL_CHECK(!text.empty() && text.size() <= kLongestToken,
               "[tokenizer] expected a token of 1 to {} bytes, got one of {}", kLongestToken,
               text.size());
  begins_[static_cast<uint8_t>(text[0])] = true;
  Node node = kRoot;
  for (const char byte : text) {
    const uint64_t key = (uint64_t{node} << 8 | static_cast<uint8_t>(byte)) + 1;
    size_t at = slot_of(key);
    if (slots_[at].key == 0) {
      if (2 * values_.size() > slots_.size()) {
        grow();
        at = slot_of(key);
      }
      slots_[at] = {key, static_cast<Node>(values_.size())};
      values_.push_back(-1);
    }
    node = slots_[at].next;
  }
  values_[node] = value;
}

}  // namespace frugal::data
