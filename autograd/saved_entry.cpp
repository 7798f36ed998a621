#include "autograd/saved_entry.h"

#include "ops/copy.h"

namespace frugal {
namespace {

// Recipes that are being replayed on this thread.
thread_local int replays = 0;
struct ReplayScope {
  ReplayScope() { ++replays; }
  ~ReplayScope() { --replays; }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;
};

}  // namespace

Tensor SavedEntry::unpack() {
  if (const Raw* raw = std::get_if<Raw>(&content_)) {
    const uint64_t now = raw->tensor.storage()->version();
    FRUGAL_CHECK(now == raw->version,
                 "[{}] expected the {} that it saved for backward unchanged, got one written in "
                 "place since (version {}, now {})",
                 raw->op, describe(raw->tensor), raw->version, now);
    return raw->tensor;
  }
  CategoryScope scope(Category::workspace);
  if (const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_))
    return (*packed)->unpack();
  if (const SignOf* sign = std::get_if<SignOf>(&content_)) return sign->packed->unpack_sign();
  return rebuild();
}

Tensor SavedEntry::rebuild() {
  Recipe& recipe = std::get<Recipe>(content_);
  Tensor value;
  {
    ReplayScope scope;
    value = ops::contiguous(recipe.fn(recipe.sources));
  }
  const bool for_itself = replays == 0;  // then one of the claims is the caller's
  if (claims_ > (for_itself ? 1 : 0)) {
    if (recipe.codec != nullptr)
      content_ = std::shared_ptr<Packed>(recipe.codec->pack(value, recipe.info));
    else
      content_ = Raw{value, value.storage()->version(), recipe.info.op};
  }
  return value;
}

Tensor SavedEntry::unpack_variance() const {
  const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_);
  CategoryScope scope(Category::workspace);
  return packed != nullptr ? (*packed)->unpack_variance() : Tensor();
}

bool SavedEntry::knows_variance() const {
  const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_);
  return packed != nullptr ? (*packed)->knows_variance() : quality() == Replay::exact;
}

Replay SavedEntry::quality() const {
  if (is_lossless()) return Replay::exact;
  return recipe() != nullptr ? recipe()->quality : Replay::unbiased;
}

void SavedEntry::prefetch() const {
  // Prefetching changes where a payload lies, not what it is.
  if (const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_)) (*packed)->prefetch();
  if (recipe() != nullptr)
    for (int i = 0; i < recipe()->sources.size(); ++i) recipe()->sources[i].prefetch();
}

std::shared_ptr<void> SavedEntry::claim() {
  ++claims_;
  return {this, [](SavedEntry* entry) { --entry->claims_; }};
}

}  // namespace frugal
