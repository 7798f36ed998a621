#include "autograd/saved_tensor.h"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <variant>

#include "autograd/node.h"
#include "ops/copy.h"

namespace frugal {

// Always stands for a dense range of memory. `content` unpacks to a contiguous tensor of that range
// in memory order.
class SavedEntry {
 public:
  struct Raw {
    Tensor tensor;
    uint64_t version;
    const char* op;
  };
  struct Recipe {
    Slots sources;
    ReplayFn fn;
    Replay quality;
  };
  using Content = std::variant<Raw, std::unique_ptr<Packed>, Recipe>;

  explicit SavedEntry(Content content) : content_(std::move(content)) {}

  Tensor unpack() const {
    if (const Raw* raw = std::get_if<Raw>(&content_)) {
      const uint64_t now = raw->tensor.storage()->version();
      FRUGAL_CHECK(now == raw->version,
                   "[{}] expected the {} that it saved for backward unchanged, got one written in "
                   "place since (version {}, now {})",
                   raw->op, describe(raw->tensor), raw->version, now);
      return raw->tensor;
    }
    CategoryScope scope(Category::workspace);
    if (const auto* packed = std::get_if<std::unique_ptr<Packed>>(&content_))
      return (*packed)->unpack();
    const Recipe& recipe = std::get<Recipe>(content_);
    return ops::contiguous(recipe.fn(recipe.sources));
  }

  Replay quality() const {
    if (is_raw()) return Replay::exact;
    const Recipe* recipe = std::get_if<Recipe>(&content_);
    return recipe != nullptr ? recipe->quality : Replay::unbiased;
  }
  bool is_raw() const { return std::holds_alternative<Raw>(content_); }
  void make_raw(Raw raw) { content_ = std::move(raw); }
  void prefetch() const {
    if (const auto* packed = std::get_if<std::unique_ptr<Packed>>(&content_)) (*packed)->prefetch();
    if (const Recipe* recipe = std::get_if<Recipe>(&content_))
      for (int i = 0; i < recipe->sources.size(); ++i) recipe->sources[i].prefetch();
  }

 private:
  Content content_;
};

namespace {

// A tensor is dense when its elements fill their range of memory; then some order of its axes is
// contiguous.
struct DenseView {
  bool dense = false;
  Tensor ordered;  // the tensor with axes in memory order: contiguous
};

DenseView dense_view(const Tensor& tensor) {
  if (tensor.is_contiguous()) return {true, tensor};
  std::vector<int> axes(static_cast<size_t>(tensor.dim()));
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return tensor.strides()[a] > tensor.strides()[b]; });
  const Tensor ordered = tensor.permute(axes);
  return {ordered.is_contiguous(), ordered};
}

struct Key {
  uint64_t storage, version;
  int64_t begin, end;  // bytes
  auto operator<=>(const Key&) const = default;
};

Key key_of(const Tensor& dense) {
  const int64_t begin = dense.offset() * static_cast<int64_t>(size_of(dense.dtype()));
  return {dense.storage()->id(), dense.storage()->version(), begin, begin + dense.nbytes()};
}

}  // namespace

// What saving needs to know, per thread.
class SaveContext {
 public:
  SavePolicy* policy = nullptr;
  uint64_t step = 0;

  void begin(uint64_t new_step) {
    step = new_step;
    seq_ = 0;
    prune();
  }

  SavedTensor keep(const char* op, int slot, const Save& request) {
    if (!request.value.defined()) return {};
    DenseView view = dense_view(request.value);
    Tensor layout = request.value;
    if (!view.dense) {
      // A view with holes: keep a copy of its own elements rather than the whole storage.
      if (request.only_for_replay) return {};
      view.ordered = layout = ops::contiguous(request.value);
    }
    const Key key = key_of(view.ordered);
    std::shared_ptr<SavedEntry> entry = find(key);
    const SavedEntry::Raw raw{view.ordered, view.ordered.storage()->version(), op};
    if (request.only_for_replay) {
      if (entry == nullptr) entry = source_of(request, raw);
      if (entry == nullptr) return {};
    } else if (request.role != Role::activation) {
      if (entry == nullptr)
        entry = add(key, raw);
      else if (!entry->is_raw())
        entry->make_raw(raw);  // the strictest request wins
    } else if (entry == nullptr) {
      entry = add(key, decide(op, slot, request, raw));
    }
    SavedTensor saved;
    saved.entry_ = std::move(entry);
    saved.shape_ = layout.shape();
    saved.strides_ = layout.strides();
    return saved;
  }

  static SaveContext& current() {
    thread_local SaveContext context;
    return context;
  }

 private:
  static SavedEntry::Recipe recipe_of(const Node& producer) {
    return {producer.slots, producer.replay.fn, producer.recipe()};
  }

  // A source that costs nothing: a parameter, or what the producer can rebuild.
  static std::shared_ptr<SavedEntry> source_of(const Save& request, const SavedEntry::Raw& raw) {
    if (request.role == Role::weight) return std::make_shared<SavedEntry>(raw);
    if (request.producer == nullptr || request.producer->recipe() == Replay::none) return nullptr;
    return std::make_shared<SavedEntry>(recipe_of(*request.producer));
  }

  SavedEntry::Content decide(const char* op, int slot, const Save& request, SavedEntry::Raw raw) {
    if (policy == nullptr) return raw;
    const Replay replay = request.producer != nullptr ? request.producer->recipe() : Replay::none;
    const SaveInfo info{op, slot, request.role, seq_++, step, replay};
    const Decision decision = policy->decide(info, raw.tensor);
    if (decision.what == Decision::replay) {
      if (replay == Replay::none)
        throw InternalError(
            fmt::format("[{}] the policy chose a recipe for slot {}, which has none", op, slot));
      return recipe_of(*request.producer);
    }
    if (decision.what == Decision::pack) return decision.codec->pack(raw.tensor, info);
    return raw;
  }

  std::shared_ptr<SavedEntry> find(const Key& key) {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  std::shared_ptr<SavedEntry> add(const Key& key, SavedEntry::Content content) {
    if (entries_.size() >= prune_at_) prune();
    auto entry = std::make_shared<SavedEntry>(std::move(content));
    entries_[key] = entry;
    return entry;
  }

  void prune() {
    std::erase_if(entries_, [](const auto& item) { return item.second.expired(); });
    prune_at_ = std::max<size_t>(1024, 2 * entries_.size());
  }

  uint64_t seq_ = 0;
  std::map<Key, std::weak_ptr<SavedEntry>> entries_;
  size_t prune_at_ = 1024;
};

SavedTensor keep(const char* op, int slot, const Save& request) {
  return SaveContext::current().keep(op, slot, request);
}

Tensor SavedTensor::unpack() const {
  if (!defined()) return {};
  const Tensor whole = entry_->unpack();
  return whole.as_strided(shape_, strides_, whole.offset());
}

Replay SavedTensor::quality() const { return defined() ? entry_->quality() : Replay::exact; }
bool SavedTensor::is_raw() const { return defined() && entry_->is_raw(); }
void SavedTensor::prefetch() const {
  if (defined()) entry_->prefetch();
}

PolicyScope::PolicyScope(SavePolicy* policy) : previous_(SaveContext::current().policy) {
  SaveContext::current().policy = policy;
}
PolicyScope::~PolicyScope() { SaveContext::current().policy = previous_; }

void begin_step(uint64_t step) { SaveContext::current().begin(step); }

}  // namespace frugal
