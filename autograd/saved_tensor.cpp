#include "autograd/saved_tensor.h"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>

#include "autograd/node.h"
#include "autograd/packed_pass.h"
#include "autograd/product_recipes.h"
#include "autograd/saved_entry.h"
#include "autograd/saved_totals.h"
#include "autograd/timeline.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"

namespace frugal {
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

// `tensor` with its last `count` axes as one. REQUIRES: contiguous.
Tensor with_one_channel_axis(const Tensor& tensor, int count) {
  if (count <= 1 || tensor.dim() < count) return tensor;
  Shape shape;
  for (int axis = 0; axis < tensor.dim() - count; ++axis) shape.push_back(tensor.size(axis));
  int64_t channels = 1;
  for (int axis = tensor.dim() - count; axis < tensor.dim(); ++axis) channels *= tensor.size(axis);
  shape.push_back(channels);
  return tensor.view(shape);
}

struct Key {
  const SavePolicy* policy;  // the policy that decided: another one may want no loss
  uint64_t storage, version;
  int64_t begin, end;  // bytes
  auto operator<=>(const Key&) const = default;
};

Key key_of(const SavePolicy* policy, const Tensor& dense) {
  const int64_t begin = dense.offset() * static_cast<int64_t>(size_of(dense.dtype()));
  return {policy, dense.storage()->id(), dense.storage()->version(), begin, begin + dense.nbytes()};
}

}  // namespace

// The state of saving, one object for each thread.
class SaveContext {
 public:
  SavePolicy* policy = nullptr;
  uint64_t step = 0;
  uint64_t next_step = 0;  // the number that a scope gives to the step that it starts
  bool begun = false;      // was a step begun since the last scope with a policy ended?
  bool in_scope = false;   // does a scope with a policy live?
  uint64_t released = 0;   // the storage of ReleasedInput; 0: none
  SavedTotals totals;      // what was saved in this step

  void begin(uint64_t new_step) {
    step = new_step;
    next_step = new_step + 1;
    begun = true;
    seq_ = 0;
    totals = {};
    // Entries of an older graph were rounded in an earlier step, so they are not shared.
    entries_.clear();
    numbered_.clear();
  }

  void number_unsaved(const Tensor& tensor) {
    const DenseView view = dense_view(tensor);
    if (policy == nullptr || !view.dense) return;
    const Key key = key_of(policy, view.ordered);
    if (find(key) == nullptr) numbered_.try_emplace(key, seq_++);
  }

  SavedTensor keep(const char* op, int slot, const Save& request, Fusion* fusion = nullptr) {
    if (!request.value.defined()) return {};
    DenseView view = dense_view(request.value);
    Tensor layout = request.value;
    if (!view.dense) {
      // A view with holes: keep a copy of its own elements rather than the whole storage.
      if (request.only_for_recipe) return {};
      view.ordered = layout = ops::contiguous(request.value);
    }
    view.ordered = with_one_channel_axis(view.ordered, request.channel_axes);
    const Key key = key_of(policy, view.ordered);
    std::shared_ptr<SavedEntry> entry = find(key);
    if (entry != nullptr && entry->serves_one_op()) {
      const bool reads =
          request.role == Role::activation && !request.lossless && !request.only_for_recipe;
      if (!reads || !serve_all(*entry, view.ordered)) entry = nullptr;
    }
    const SavedEntry::Raw raw{view.ordered, view.ordered.storage()->version(), op};
    if (request.only_for_recipe) {
      if (entry == nullptr) entry = source_of(request, raw);
      if (entry == nullptr) return {};
    } else if (request.lossless && entry != nullptr && !entry->is_lossless()) {
      entry->replace(raw);
    } else if (request.role != Role::activation) {
      if (entry == nullptr)
        (entry = add(key, raw, raw.tensor.shape()))->set_sizes({raw.tensor.nbytes(), 0});
      else if (!entry->is_lossless())
        entry->replace(raw);  // the strictest request wins
    } else if (entry == nullptr) {
      std::shared_ptr<SavedEntry> carried;
      const uint64_t seq = policy != nullptr ? next_number(key) : 0;
      packed_bytes_ = 0;
      packing_.reset();
      entry = add(key, decide(op, slot, request, seq, raw, carried, fusion), raw.tensor.shape());
      entry->set_sizes({raw.tensor.nbytes(), packed_bytes_});
      entry->set_curved(request.curved);
      entry->set_source_bits(ProductSources::bits());
      entry->set_packing(packing_);
      if (policy != nullptr) entry->set_seq(seq);
      if (fusion != nullptr && fusion->sign.defined()) carried = fusion->sign.entry_;
      entry->hold(std::move(carried));
    }
    SavedTensor saved = handle(std::move(entry), layout);
    saved.role_ = request.role;
    saved.use_ = request.use;
    if (!request.only_for_recipe) saved.claim_ = saved.entry_->claim();
    return saved;
  }

  // The request takes its number in finish(), so that a caller may drop the result.
  std::unique_ptr<SlicedSave> begin_slices(const char* op, const Save& request, bool makes_mask) {
    if (policy == nullptr || !policy->decides_by_shape() || request.role != Role::activation ||
        request.producer == nullptr || request.producer->has_recipe() ||
        kept_sign_of(request.producer.get()) != nullptr)
      return nullptr;
    auto slices = std::make_unique<SlicedSave>();
    slices->like_ = request.value;
    slices->sign_ = request.sign;
    SaveInfo& info = slices->info_;
    info = {.op = op,
            .slot = 0,
            .seq = seq_,
            .step = step,
            .use = request.use,
            .source_bits = ProductSources::bits()};
    const Decision decision = policy->decide(info, request.value);
    if (decision.what != Decision::pack) return nullptr;
    if (makes_mask && decision.carry_sign) info.sign = &slices->sign_;
    slices->packer_ = timed(info, request.value,
                            [&] { return decision.codec->pack_slices(request.value, info); });
    slices->packed_bytes_ = packed_bytes_;
    return slices->packer_ == nullptr ? nullptr : std::move(slices);
  }

  void finish(SlicedSave& slices, Save& x, Save& sign) {
    const Tensor& like = slices.like_;
    FRUGAL_ASSERT(slices.info_.seq == seq_);
    ++seq_;
    totals.packed_elements += like.numel();
    const std::shared_ptr<Packed> packed = slices.packer_->finish();
    const auto entry = std::make_shared<SavedEntry>(packed, like.shape());
    entry->set_sizes({like.nbytes(), slices.packed_bytes_});
    entry->set_seq(slices.info_.seq);
    entry->set_source_bits(slices.info_.source_bits);
    x.kept.entry_ = entry;
    x.kept.shape_ = like.shape();
    x.kept.strides_ = contiguous_strides(like.shape());
    x.kept.role_ = x.role;
    x.kept.use_ = x.use;
    x.kept.claim_ = entry->claim();
    if (packed->carries_sign()) sign.kept = sign_in(packed, like.shape());
  }

  void share(const SavedTensor& saved, const Tensor& unpacked) {
    if (!saved.defined() || saved.is_raw() || saved.is_recipe() || !unpacked.is_contiguous() ||
        saved.strides_ != contiguous_strides(saved.shape_))
      return;
    entries_[key_of(policy, unpacked)] = saved.entry_;
  }

  static const SavedEntry* entry_of(const SavedTensor& saved) { return saved.entry_.get(); }

  static SaveContext& current() {
    thread_local SaveContext context;
    return context;
  }

 private:
  static SavedTensor handle(std::shared_ptr<SavedEntry> entry, const Tensor& layout) {
    SavedTensor saved;
    saved.entry_ = std::move(entry);
    saved.shape_ = layout.shape();
    saved.strides_ = layout.strides();
    return saved;
  }

  static SavedEntry::Recipe recipe_of(const Slots& slots, const RecipeSpec& spec) {
    SavedEntry::Recipe recipe{.sources = slots.as_sources(),
                              .fn = spec.fn,
                              .quality = Rebuilt::exact,
                              .least_bits = spec.least_bits,
                              .by_rows = spec.by_rows};
    for (int i = 0; i < slots.size(); ++i) {
      recipe.quality = std::max(recipe.quality, slots[i].quality());
      recipe.depth = std::max(recipe.depth, slots[i].recipe_depth() + 1);
      recipe.elements += slots[i].rebuilt_elements();
      if (const SavedEntry* source = entry_of(slots[i]); source != nullptr) {
        if (source->recipe() != nullptr)
          recipe.least_bits = std::max(recipe.least_bits, source->recipe()->least_bits);
        recipe.source_bits = std::min(recipe.source_bits, source->source_bits());
      }
      const bool is_linear = i < 32 && (spec.linear_slots >> i & 1u) != 0;
      const bool reads_curve =
          (spec.lossy == Rebuilt::corrected && !is_linear) || slots[i].is_recipe();
      if (reads_curve && slots[i].defined())
        recipe.told_curved = recipe.told_curved && entry_of(slots[i])->told_curved();
    }
    if (recipe.quality != Rebuilt::exact) recipe.quality = std::max(recipe.quality, spec.lossy);
    if (spec.lossy == Rebuilt::corrected)
      for (int i = 0; i < slots.size(); ++i)
        if (!slots[i].knows_variance()) recipe.quality = Rebuilt::biased;
    return recipe;
  }

  // A source that costs nothing: a parameter, or what the producer can rebuild.
  static std::shared_ptr<SavedEntry> source_of(const Save& request, const SavedEntry::Raw& raw) {
    if (request.role == Role::weight) return std::make_shared<SavedEntry>(raw, raw.tensor.shape());
    if (request.producer == nullptr || !request.producer->has_recipe()) return nullptr;
    return std::make_shared<SavedEntry>(
        recipe_of(request.producer->slots, request.producer->recipe), raw.tensor.shape());
  }

  // The SaveInfo::seq of a tensor that a policy is asked about now.
  uint64_t next_number(const Key& key) {
    const auto found = numbered_.find(key);
    if (found == numbered_.end()) return seq_++;
    const uint64_t seq = found->second;
    numbered_.erase(found);
    return seq;
  }

  SavedEntry::Content decide(const char* op, int slot, const Save& request, uint64_t seq,
                             const SavedEntry::Raw& raw, std::shared_ptr<SavedEntry>& carried,
                             Fusion* fusion) {
    if (policy == nullptr) return raw;
    SaveInfo info{.op = op,
                  .slot = slot,
                  .role = request.role,
                  .seq = seq,
                  .step = step,
                  .use = request.use,
                  .curved = request.curved,
                  .source_bits = ProductSources::bits(),
                  .lossless = request.lossless,
                  .released = raw.tensor.storage()->id() == released};
    SavedEntry::Recipe recipe;
    if (request.producer != nullptr && request.producer->has_recipe()) {
      recipe = recipe_of(request.producer->slots, request.producer->recipe);
      info.rebuilt = recipe.quality;
      // Nobody knows the variance of a rebuilt tensor.
      const bool noisy = info.rebuilt == Rebuilt::unbiased || info.rebuilt == Rebuilt::corrected;
      if (request.curved && noisy) info.rebuilt = Rebuilt::biased;
      info.recipe_elements = recipe.elements;
      info.told_curved = recipe.told_curved;
      info.least_bits = recipe.least_bits;
      info.told_sources = recipe.source_bits >= recipe.least_bits;
    }
    const Decision decision = policy->decide(info, raw.tensor);
    if (decision.what == Decision::rebuild) {
      if (info.rebuilt == Rebuilt::none)
        throw InternalError(
            fmt::format("[{}] the policy chose a recipe for slot {}, which has none", op, slot));
      recipe.info = info;
      recipe.codec = decision.codec;
      return recipe;
    }
    if (decision.what != Decision::pack) return raw;
    totals.packed_elements += raw.tensor.numel();
    if (fusion != nullptr) {
      const std::shared_ptr<Packed> packed =
          pack_and_run(decision, request, info, raw.tensor, *fusion);
      if (packed != nullptr) return packed;
      fusion->run();
      Save complete = request;
      complete.sign.mask = fusion->pass.kept;
      return pack(decision, complete, info, raw.tensor, carried);
    }
    return pack(decision, request, info, raw.tensor, carried);
  }

  // Returns null if the codec has no kernel for the pass, or if the codes shall carry a mask that
  // is kept already.
  std::shared_ptr<Packed> pack_and_run(const Decision& decision, const Save& request, SaveInfo info,
                                       const Tensor& tensor, Fusion& fusion) {
    const bool makes_mask = fusion.pass.rectifies();
    if (!makes_mask && !request.curved && decision.carry_sign &&
        kept_sign_of(request.producer.get()) != nullptr)
      return nullptr;
    if (makes_mask && decision.carry_sign) info.sign = &request.sign;
    std::shared_ptr<Packed> packed = timed(
        info, tensor, [&] { return decision.codec->pack_and_run(tensor, info, fusion.pass); });
    if (packed == nullptr) return nullptr;
    fusion.done = true;
    if (packed->carries_sign()) fusion.sign = sign_in(packed, tensor.shape());
    note_packing(*packed, *decision.codec, info);
    return packed;
  }

  void note_packing(const Packed& packed, const Codec& codec, SaveInfo info) {
    info.sign = nullptr;
    if (packed.serves_one_op()) packing_ = {&codec, info};
  }

  // Makes the codes of an entry anew, since another op reads the values, too: the codes then tell
  // all of them equally well, and nothing is kept twice. False, with nothing done, where the mask
  // that the codes carry is not known.
  bool serve_all(SavedEntry& entry, const Tensor& tensor) {
    if (!entry.packing() || entry.mask() == nullptr) return false;
    const Codec* const codec = entry.packing()->codec;
    SaveInfo info = entry.packing()->info;
    const Sign sign{entry.mask()->unpack(), 1};
    info.sign = &sign;
    const Tensor value = tensor.view(entry.shape());
    const std::shared_ptr<Packed> packed =
        timed(info, value, [&] { return codec->pack(value, info); });
    if (!packed->carries_sign() || packed->serves_one_op()) return false;
    entry.mask()->replace(SavedEntry::SignOf{packed, value.dim() == 0 ? 1 : value.size(0)});
    entry.replace(packed);
    entry.set_packing({});
    return true;
  }

  // The mask that the codes of a tensor of that shape carry.
  static SavedTensor sign_in(const std::shared_ptr<Packed>& packed, const Shape& of) {
    const ops::BitmaskLayout bits = ops::bitmask_layout(of);
    SavedTensor sign;
    sign.shape_ = {bits.rows / 8, bits.cols};
    sign.entry_ = std::make_shared<SavedEntry>(
        SavedEntry::SignOf{packed, of.dim() == 0 ? 1 : of[0]}, sign.shape_);
    sign.strides_ = contiguous_strides(sign.shape_);
    sign.role_ = Role::mask;
    sign.claim_ = sign.entry_->claim();
    return sign;
  }

  // Runs `pack` and, for an active timeline, measures its time and the bytes of the codes.
  template <class F>
  auto timed(const SaveInfo& info, const Tensor& tensor, F&& pack) -> decltype(pack()) {
    packed_bytes_ = 0;
    if (active_timeline() == nullptr) return pack();
    const auto bytes = [&] { return allocator(tensor.device()).report().of(Category::packed); };
    const int64_t before = bytes();
    decltype(pack()) packed;
    {
      const TimeSpan span(Timeline::Kind::pack, info.op);
      packed = pack();
    }
    packed_bytes_ = bytes() - before;
    return packed;
  }

  // If the codes carry a mask, the entry of the mask refers to the codes from then on.
  SavedEntry::Content pack(const Decision& decision, const Save& request, SaveInfo info,
                           const Tensor& tensor, std::shared_ptr<SavedEntry>& carried) {
    Sign sign = request.sign;
    std::shared_ptr<SavedEntry> kept_mask;
    // The variance of codes that carry a sign is not known.
    const bool carry_sign = decision.carry_sign && !request.curved;
    if (!sign.mask.defined() && carry_sign) {
      kept_mask = kept_sign_of(request.producer.get());
      // All elements of an output matter equally to its consumer.
      if (kept_mask != nullptr) sign = {kept_mask->unpack(), 1};
    }
    if (sign.mask.defined() && carry_sign) info.sign = &sign;
    const std::shared_ptr<Packed> packed =
        timed(info, tensor, [&] { return decision.codec->pack(tensor, info); });
    note_packing(*packed, *decision.codec, info);
    if (packed->carries_sign()) {
      const SavedEntry::SignOf content{packed, tensor.dim() == 0 ? 1 : tensor.size(0)};
      if (kept_mask != nullptr)
        kept_mask->replace(content);
      else
        (carried = add(key_of(policy, sign.mask), content, sign.mask.shape()))
            ->set_sizes({sign.mask.nbytes(), 0});
    }
    return packed;
  }

  static std::shared_ptr<SavedEntry> kept_sign_of(const Node* producer) {
    if (producer == nullptr || producer->walked || producer->sign_slot < 0) return nullptr;
    const auto& entry = producer->slots[producer->sign_slot].entry_;
    return entry->is_raw() ? entry : nullptr;
  }

  std::shared_ptr<SavedEntry> find(const Key& key) {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  std::shared_ptr<SavedEntry> add(const Key& key, SavedEntry::Content content, const Shape& shape) {
    if (entries_.size() >= prune_at_) prune();
    auto entry = std::make_shared<SavedEntry>(std::move(content), shape);
    entries_[key] = entry;
    return entry;
  }

  void prune() {
    std::erase_if(entries_, [](const auto& item) { return item.second.expired(); });
    prune_at_ = std::max<size_t>(1024, 2 * entries_.size());
  }

  uint64_t seq_ = 0;
  int64_t packed_bytes_ = 0;  // bytes of the last codes; counted while a timeline is active
  std::optional<SavedEntry::Packing> packing_;  // how the last codes were made
  std::map<Key, std::weak_ptr<SavedEntry>> entries_;
  std::map<Key, uint64_t> numbered_;  // tensors of number_unsaved() that nobody saved since
  size_t prune_at_ = 1024;
};

const SavedEntry* entry_of(const SavedTensor& saved) { return SaveContext::entry_of(saved); }

void number_unsaved(const Tensor& tensor) { SaveContext::current().number_unsaved(tensor); }

SavedTensor keep(const char* op, int slot, const Save& request, Fusion* fusion) {
  return SaveContext::current().keep(op, slot, request, fusion);
}

std::unique_ptr<SlicedSave> save_in_slices(const char* op, const Variables& inputs, const Save& x,
                                           bool makes_mask) {
  return recording(inputs) ? SaveContext::current().begin_slices(op, x, makes_mask) : nullptr;
}

void SlicedSave::add(const Tensor& rows, const Tensor& mask) {
  const TimeSpan span(Timeline::Kind::pack, info_.op);
  packer_->add(rows, mask);
}

void SlicedSave::finish(Save& x, Save& sign) { SaveContext::current().finish(*this, x, sign); }

Tensor SavedTensor::unpack() const {
  if (!defined()) return {};
  const Tensor whole = entry_->unpack();
  return whole.as_strided(shape_, strides_, whole.offset());
}

bool SavedTensor::has_rows(const Rows& rows) const {
  if (!defined() || role_ == Role::weight || role_ == Role::whole) return true;
  if (role_ == Role::mask) return entry_->has_mask_rows(rows);
  // In another layout the elements of a row are not neighbours.
  return shape_.dim() > 0 && shape_[0] == rows.of && strides_ == contiguous_strides(shape_) &&
         entry_->has_rows(rows);
}

Tensor SavedTensor::unpack_rows(const Rows& rows) const {
  if (!defined() || role_ == Role::weight || role_ == Role::whole) return unpack();
  if (role_ == Role::mask) {
    FRUGAL_ASSERT(has_rows(rows));
    return entry_->unpack_mask_rows(rows);
  }
  // A raw entry may be another view of the bytes.
  if (is_raw() || !has_rows(rows)) return unpack().slice(0, rows.begin, rows.end);
  Shape shape = shape_;
  shape[0] = rows.end - rows.begin;
  return entry_->unpack_rows(rows).view(shape);
}

std::vector<uint64_t> SavedTensor::rests_on() const {
  std::vector<uint64_t> seqs;
  if (defined()) entry_->collect_sources(seqs);
  std::sort(seqs.begin(), seqs.end());
  seqs.erase(std::unique(seqs.begin(), seqs.end()), seqs.end());
  return seqs;
}

bool SavedTensor::run(PackedPass& pass, const SavedTensor& mask) const {
  if (!defined()) return false;
  const Rows& rows = pass.rows;
  if (pass.is_variance() && rows.of == 0) {
    // The pass has no operand, so it may run in the layout of the entry.
    if (!entry_->run(pass, nullptr)) return false;
    pass.out = pass.out.as_strided(shape_, strides_, pass.out.offset());
    return true;
  }
  if (strides_ != contiguous_strides(shape_) || (rows.of != 0 && !has_rows(rows))) return false;
  if (!entry_->run(pass, mask.entry_.get())) return false;
  if (!pass.out.defined()) return true;
  Shape shape = shape_;
  if (rows.of != 0) shape[0] = rows.end - rows.begin;
  pass.out = pass.out.view(shape);
  return true;
}

bool SavedTensor::is_recipe() const { return defined() && entry_->recipe() != nullptr; }

Rebuilt SavedTensor::quality() const { return defined() ? entry_->quality() : Rebuilt::exact; }
bool SavedTensor::knows_variance() const { return !defined() || entry_->knows_variance(); }
bool SavedTensor::is_raw() const { return defined() && entry_->is_raw(); }
bool SavedTensor::is_sole_owner() const {
  // The two handles are the entry's own and the temporary one in this expression.
  return is_raw() && entry_.use_count() == 1 && entry_->unpack().storage().use_count() == 2;
}
void SavedTensor::prefetch() const {
  if (!defined()) return;
  if (claim_ != nullptr) entry_->expect();
  entry_->prefetch();
}
SavedTensor SavedTensor::as_source() const {
  SavedTensor source = *this;
  source.claim_.reset();
  return source;
}
int SavedTensor::recipe_depth() const {
  return defined() && entry_->recipe() != nullptr ? entry_->recipe()->depth : 0;
}
int64_t SavedTensor::rebuilt_elements() const {
  if (!defined() || entry_->recipe() == nullptr) return 0;
  return shape_.numel() + entry_->recipe()->elements;
}

Tensor Slots::run(PackedPass pass, int slot, int mask) const {
  pass.rows = rows_;
  return run_over((*this)[slot], std::move(pass), mask < 0 ? SavedTensor() : (*this)[mask]);
}

Slots Slots::as_sources() const {
  std::vector<SavedTensor> sources;
  for (const SavedTensor& slot : slots_) sources.push_back(slot.as_source());
  return Slots(std::move(sources));
}

Slots Slots::at(const Rows& rows) const {
  Slots slice = *this;
  slice.rows_ = rows;
  return slice;
}

bool saves_may_be_lossy() {
  const SavePolicy* policy = SaveContext::current().policy;
  return policy != nullptr && policy->lossy();
}

SavePolicy* policy_of_recomputations() {
  SavePolicy* const policy = SaveContext::current().policy;
  return policy != nullptr && policy->packs_recomputed() ? policy : nullptr;
}

void share_codes(const SavedTensor& saved, const Tensor& unpacked) {
  SaveContext::current().share(saved, unpacked);
}

int64_t slice_bytes() {
  const SavePolicy* policy = SaveContext::current().policy;
  return policy != nullptr ? policy->slice_bytes() : 0;
}

PolicyScope::PolicyScope(SavePolicy* policy)
    : previous_(SaveContext::current().policy),
      outermost_(policy != nullptr && !SaveContext::current().in_scope) {
  SaveContext& context = SaveContext::current();
  context.policy = policy;
  if (!outermost_) return;
  context.in_scope = true;
  if (!context.begun) context.begin(context.next_step);
}

PolicyScope::PolicyScope(SavePolicy* policy, SameStep)
    : previous_(SaveContext::current().policy), outermost_(false) {
  SaveContext::current().policy = policy;
}

PolicyScope::PolicyScope(SavePolicy* policy, uint64_t step)
    : PolicyScope((begin_step(step), policy)) {}

PolicyScope::~PolicyScope() {
  SaveContext& context = SaveContext::current();
  context.policy = previous_;
  if (outermost_) context.in_scope = context.begun = false;
}

ReleasedInput::ReleasedInput(const Tensor& input) : previous_(SaveContext::current().released) {
  if (input.defined()) SaveContext::current().released = input.storage()->id();
}
ReleasedInput::~ReleasedInput() { SaveContext::current().released = previous_; }

SavedTotals saved_totals() { return SaveContext::current().totals; }

void begin_step(uint64_t step) { SaveContext::current().begin(step); }

}  // namespace frugal
