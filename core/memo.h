// Memo: the values that were made for keys, the most recently used of them, so that they are not
// made again. What asks for the values owns the memo. Not thread-safe.
#pragma once
#include <list>
#include <map>
#include <utility>

#include "core/error.h"

namespace frugal {

template <class Key, class Value>
class Memo {
 public:
  explicit Memo(size_t most) : most_(most) { FRUGAL_ASSERT(most > 0); }

  // The key's value, the most recently used from now on; null where there is none.
  Value* find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second.place);
    return &found->second.value;
  }
  // Takes the place of the key's value, or of the value least recently used where `most` are there.
  Value& put(const Key& key, Value value) {
    if (Value* known = find(key)) return *known = std::move(value);
    if (entries_.size() == most_) {
      const auto oldest = entries_.find(*order_.back());
      order_.pop_back();
      entries_.erase(oldest);
    }
    const auto made = entries_.emplace(key, Entry{std::move(value), {}}).first;
    made->second.place = order_.insert(order_.begin(), &made->first);
    return made->second.value;
  }
  // find(key), or put(key, make()) where there is none. An error of make() changes nothing.
  template <class Make>
  Value& find_or_make(const Key& key, const Make& make) {
    Value* known = find(key);
    return known != nullptr ? *known : put(key, make());
  }
  // Forgets the entries for which drop(key, value) is true.
  template <class Drop>
  void forget_if(const Drop& drop) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (!drop(entry->first, entry->second.value)) {
        ++entry;
        continue;
      }
      order_.erase(entry->second.place);
      entry = entries_.erase(entry);
    }
  }
  size_t size() const { return entries_.size(); }

 private:
  using Order = std::list<const Key*>;  // the most recently used first
  struct Entry {
    Value value;
    typename Order::iterator place;
  };
  size_t most_;
  std::map<Key, Entry> entries_;
  Order order_;
};

}  // namespace frugal
