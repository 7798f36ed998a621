#include "autograd/saved_entry.h"

#include <algorithm>
#include <utility>

#include "autograd/packed_pass.h"
#include "autograd/timeline.h"
#include "ops/dense/copy.h"

namespace frugal {
namespace {

// How many recipes are being rebuilt on this thread, and the rows of the innermost one.
thread_local int rebuilds = 0;
thread_local Rows rows_now;
class RebuildScope {
 public:
  explicit RebuildScope(const Rows& rows) : outer_(std::exchange(rows_now, rows)) { ++rebuilds; }
  ~RebuildScope() {
    --rebuilds;
    rows_now = outer_;
  }
  RebuildScope(const RebuildScope&) = delete;
  RebuildScope& operator=(const RebuildScope&) = delete;

 private:
  Rows outer_;
};

// How many nodes backward has come to on this thread.
thread_local uint64_t position = 0;

// A rebuilt tensor of at most this many bytes waits raw if its consumers run next. Packing and
// unpacking would take longer, and lose more.
constexpr int64_t kWaitsRaw = SavePolicy::kSliceBytes;

}  // namespace

void advance_backward() { ++position; }
const Rows& rebuilt_rows() { return rows_now; }

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
  if (recipe() != nullptr) return rebuild();
  const TimeSpan span(Timeline::Kind::unpack);
  if (const SignOf* sign = std::get_if<SignOf>(&content_)) return sign->packed->unpack_sign();
  return std::get<std::shared_ptr<Packed>>(content_)->unpack();
}

Tensor SavedEntry::rebuild() {
  Recipe& recipe = std::get<Recipe>(content_);
  if (!recipe.parts.empty()) return unpack_rows({0, shape_[0], shape_[0]});
  Tensor value;
  {
    const TimeSpan span(Timeline::Kind::rebuild);
    const RebuildScope scope({});
    value = ops::contiguous(recipe.fn(recipe.sources));
  }
  if (others_claim()) {
    if (recipe.codec != nullptr && !(value.nbytes() <= kWaitsRaw && others_are_near())) {
      const TimeSpan span(Timeline::Kind::pack);
      content_ = std::shared_ptr<Packed>(recipe.codec->pack(value.view(shape_), recipe.info));
    } else
      content_ = Raw{value, value.storage()->version(), recipe.info.op};
  }
  return value;
}

// Outside a rebuild one of the claims belongs to the caller.
bool SavedEntry::others_claim() const { return claims_ > (rebuilds == 0 ? 1 : 0); }

void SavedEntry::expect() const {
  if (expected_at_ != position) expected_ = 0;
  expected_at_ = position;
  ++expected_;
}

bool SavedEntry::others_are_near() const {
  return rebuilds == 0 && expected_at_ == position && expected_ >= claims_ - 1;
}

bool SavedEntry::has_rows(const Rows& rows) const {
  if (shape_.dim() == 0 || shape_[0] != rows.of) return false;
  if (recipe() == nullptr) return !std::holds_alternative<SignOf>(content_);
  if (!recipe()->by_rows) return false;
  for (int i = 0; i < recipe()->sources.size(); ++i)
    if (!recipe()->sources[i].has_rows(rows)) return false;
  return true;
}

// A byte of a mask holds elements of eight rows, so a range of rows must begin and end at whole
// bytes. A mask in another layout has one row, so only the whole mask is such a range.
bool SavedEntry::has_mask_rows(const Rows& rows) const {
  if (recipe() != nullptr || shape_.dim() != 2 || rows.of == 0) return false;
  const int64_t elements = 8 * shape_[0];
  if (elements % rows.of != 0) return false;
  const int64_t each = elements / rows.of;
  if (rows.begin * each % 8 != 0 || rows.end * each % 8 != 0) return false;
  const SignOf* sign = std::get_if<SignOf>(&content_);
  return sign == nullptr || sign->items == rows.of;
}

Tensor SavedEntry::unpack_mask_rows(const Rows& rows) {
  const int64_t each = 8 * shape_[0] / rows.of;
  if (const SignOf* sign = std::get_if<SignOf>(&content_)) {
    CategoryScope scope(Category::workspace);
    const TimeSpan span(Timeline::Kind::unpack);
    const Tensor mask = sign->packed->unpack_sign_rows(rows.begin, rows.end);
    if (mask.defined()) return mask;
  }
  return unpack().slice(0, rows.begin * each / 8, rows.end * each / 8);
}

Tensor SavedEntry::unpack_rows(const Rows& rows) {
  if (is_raw()) return unpack().slice(0, rows.begin, rows.end);
  CategoryScope scope(Category::workspace);
  if (const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_)) {
    const TimeSpan span(Timeline::Kind::unpack);
    return (*packed)->unpack_rows(rows.begin, rows.end);
  }
  const Recipe* now = recipe();
  // A tensor that waits raw has to be whole.
  const bool whole = rows.begin == 0 && rows.end == rows.of;
  if (now->parts.empty() && (whole || (others_claim() && now->codec == nullptr)))
    return unpack().slice(0, rows.begin, rows.end);
  // Takes the parts that are rebuilt already, and rebuilds the rows between them.
  JoinedRows found(rows.end - rows.begin);
  int64_t row = rows.begin;
  const std::vector<PackedPart> parts = now->parts;
  for (const PackedPart& part : parts) {
    if (part.end <= row || part.begin >= rows.end) continue;
    if (row < part.begin) found.add(rebuild_rows({row, part.begin, rows.of}));
    row = std::max(row, part.begin);
    const int64_t to = std::min(part.end, rows.end);
    const TimeSpan span(Timeline::Kind::unpack);
    found.add(part.packed->unpack_rows(row - part.begin, to - part.begin));
    row = to;
  }
  if (row < rows.end) found.add(rebuild_rows({row, rows.end, rows.of}));
  return found.take();
}

Tensor SavedEntry::rebuild_rows(const Rows& rows) {
  Tensor value;
  {
    const TimeSpan span(Timeline::Kind::rebuild);
    const RebuildScope scope(rows);
    const Recipe& now = std::get<Recipe>(content_);
    value = ops::contiguous(now.fn(now.sources.at(rows)));
  }
  if (others_claim()) keep_part(rows, value);
  return value;
}

void SavedEntry::keep_part(const Rows& rows, const Tensor& value) {
  Recipe& now = std::get<Recipe>(content_);
  if (now.codec == nullptr) return;
  SaveInfo info = now.info;
  info.seq += static_cast<uint64_t>(rows.begin) << 32;  // a random stream of its own
  const auto at = std::find_if(now.parts.begin(), now.parts.end(),
                               [&](const PackedPart& part) { return part.begin > rows.begin; });
  const TimeSpan span(Timeline::Kind::pack);
  Shape shape = shape_;
  shape[0] = rows.end - rows.begin;
  now.parts.insert(at, {rows.begin, rows.end, now.codec->pack(value.view(shape), info)});
  int64_t covered = 0;
  for (const PackedPart& part : now.parts) covered += part.end - part.begin;
  if (covered == shape_[0])
    content_ = std::shared_ptr<Packed>(std::make_shared<PackedParts>(std::move(now.parts)));
}

bool SavedEntry::run(PackedPass& pass, SavedEntry* mask) const {
  const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_);
  if (packed == nullptr) return false;
  if (mask != nullptr) {
    const SignOf* sign = std::get_if<SignOf>(&mask->content_);
    pass.mask.in_codes = sign != nullptr && sign->packed == *packed;
    if (!pass.mask.in_codes && !mask->is_raw()) return false;
    if (!pass.mask.in_codes) pass.mask.bits = mask->unpack();
  }
  return (*packed)->run(pass);
}

bool SavedEntry::knows_variance() const {
  const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_);
  return (packed != nullptr && (*packed)->knows_variance()) || quality() == Rebuilt::exact;
}

bool SavedEntry::tells_loss() const {
  if (const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_))
    return (*packed)->knows_variance() || (*packed)->loses_nothing();
  if (recipe() == nullptr) return true;
  for (int i = 0; i < recipe()->sources.size(); ++i) {
    const SavedEntry* source = entry_of(recipe()->sources[i]);
    if (source != nullptr && !source->tells_loss()) return false;
  }
  return true;
}

bool SavedEntry::serves_one_op() const {
  const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_);
  return packed != nullptr && (*packed)->serves_one_op();
}

bool SavedEntry::loses_nothing() const {
  const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_);
  return is_lossless() || (packed != nullptr && (*packed)->loses_nothing());
}

Rebuilt SavedEntry::quality() const {
  if (loses_nothing()) return Rebuilt::exact;
  return recipe() != nullptr ? recipe()->quality : Rebuilt::unbiased;
}

void SavedEntry::collect_sources(std::vector<uint64_t>& seqs) const {
  if (recipe() != nullptr) {
    for (int i = 0; i < recipe()->sources.size(); ++i) {
      const std::vector<uint64_t> found = recipe()->sources[i].rests_on();
      seqs.insert(seqs.end(), found.begin(), found.end());
    }
  } else if (seq_) {
    seqs.push_back(*seq_);
  }
}

void SavedEntry::prefetch() const {
  // Prefetching moves a payload and does not change it, so this function may be const.
  if (const auto* packed = std::get_if<std::shared_ptr<Packed>>(&content_)) (*packed)->prefetch();
  if (recipe() != nullptr)
    for (int i = 0; i < recipe()->sources.size(); ++i) recipe()->sources[i].prefetch();
}

std::shared_ptr<void> SavedEntry::claim() {
  ++claims_;
  return {this, [](SavedEntry* entry) { --entry->claims_; }};
}

}  // namespace frugal
