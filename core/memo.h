// Recent: a map that keeps the entries used last. Not thread-safe.
#pragma once
#include <list>
#include <map>
#include <utility>

#include "core/error.h"

namespace frugal {

template <class Key, class Value>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) { FRUGAL_ASSERT(most > 0); }

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
