// SavedEntry: one kept tensor, shared by all ops that saved it. Internal to autograd.
#pragma once
#include <limits>
#include <variant>

#include "autograd/packed_parts.h"

namespace frugal {

// Called when backward comes to its next node: SavedEntry::expect() counts from 0 again.
void advance_backward();

// An entry stands for a dense range of memory. unpack() gives a contiguous tensor of that range, in
// the order of memory.
class SavedEntry {
 public:
  struct Raw {
    Tensor tensor;
    uint64_t version;
    const char* op;
  };
  static constexpr int kAnyBits = std::numeric_limits<int>::max();
  // The producer's slots and how they give its output.
  struct Recipe {
    Slots sources;
    RecipeFn fn;
    Rebuilt quality = Rebuilt::none;
    bool told_curved = true;       // see SaveInfo
    int depth = 1;                 // how many recipes run, this one included
    int64_t elements = 0;          // how many elements the other rebuilt tensors have
    int least_bits = 0;            // see SaveInfo
    int source_bits = kAnyBits;    // the fewest that its sources were told of
    SaveInfo info = {};            // what the policy decided about
    const Codec* codec = nullptr;  // packs a rebuilt tensor that waits for consumers; null: raw
    bool by_rows = false;          // rows of the sources give rows of the output
    std::vector<PackedPart> parts = {};  // rebuilt rows that wait for consumers, in order
  };
  struct SignOf {
    std::shared_ptr<Packed> packed;  // its codes carry the mask
    int64_t items = 0;               // the leading extent of the packed tensor
  };
  using Content = std::variant<Raw, std::shared_ptr<Packed>, Recipe, SignOf>;

  // shape: the shape of the kept tensor.
  SavedEntry(Content content, const Shape& shape) : content_(std::move(content)), shape_(shape) {}
  SavedEntry(const SavedEntry&) = delete;
  SavedEntry& operator=(const SavedEntry&) = delete;

  // If a recipe was run and others will ask for the tensor too, the entry keeps it: nothing is
  // rebuilt twice.
  Tensor unpack();
  // Rows of unpack(), contiguous. REQUIRES: has_rows(rows).
  Tensor unpack_rows(const Rows& rows);
  // For an entry that holds a bitmask: its bits for these rows of the tensor that it describes.
  // REQUIRES: has_mask_rows(rows).
  Tensor unpack_mask_rows(const Rows& rows);
  bool has_rows(const Rows& rows) const;
  bool has_mask_rows(const Rows& rows) const;
  // Packed::run(), by `mask` unless null. False unless this is packed.
  bool run(PackedPass& pass, SavedEntry* mask) const;
  bool knows_variance() const;  // see SavedTensor
  // Is it known whether unpack() gives other values than those that were saved? Not so for codes
  // that tell no variance, which may lose nothing.
  bool tells_loss() const;
  bool serves_one_op() const;  // see Packed
  Rebuilt quality() const;
  // See SavedTensor::rests_on(). `seq` is the SaveInfo::seq that the policy decided about.
  void collect_sources(std::vector<uint64_t>& seqs) const;
  void set_seq(uint64_t seq) { seq_ = seq; }
  // See SaveInfo::told_curved; `curved`: what SaveInfo said of this.
  void set_curved(bool curved) { curved_ = curved; }
  bool told_curved() const {
    return recipe() != nullptr ? recipe()->told_curved : curved_ || loses_nothing();
  }
  // What SaveInfo said of this, or of the sources of this.
  void set_source_bits(int bits) { source_bits_ = bits; }
  int source_bits() const {
    if (recipe() != nullptr) return recipe()->source_bits;
    return loses_nothing() ? kAnyBits : source_bits_;
  }
  bool is_raw() const { return std::holds_alternative<Raw>(content_); }
  bool is_lossless() const { return is_raw() || std::holds_alternative<SignOf>(content_); }
  // Also true where a codec keeps the tensor as it is, as one that was moved to a file.
  bool loses_nothing() const;
  const Recipe* recipe() const { return std::get_if<Recipe>(&content_); }
  const Raw* raw() const { return std::get_if<Raw>(&content_); }
  // Bytes of the tensor, and of the codes of a packed one. The second is measured for an active
  // timeline alone, and 0 without one.
  struct Sizes {
    int64_t raw = 0, packed = 0;
  };
  const Sizes& sizes() const { return sizes_; }
  void set_sizes(const Sizes& sizes) { sizes_ = sizes; }
  void replace(Content content) { content_ = std::move(content); }
  void prefetch() const;
  // Counts one more node that runs soon and will ask for this entry.
  void expect() const;

  // Keeps the entry of the mask that these codes carry until its saver asks for it.
  void hold(std::shared_ptr<SavedEntry> mask) { mask_ = std::move(mask); }
  SavedEntry* mask() const { return mask_.get(); }  // the entry that it holds; null: none

  // How codes were made that serve one op alone (Packed::serves_one_op).
  struct Packing {
    const Codec* codec = nullptr;
    SaveInfo info = {};  // without the sign
  };
  void set_packing(const std::optional<Packing>& packing) { packing_ = packing; }
  const std::optional<Packing>& packing() const { return packing_; }
  const Shape& shape() const { return shape_; }

  // A token that counts as one consumer while it lives.
  std::shared_ptr<void> claim();

 private:
  Tensor rebuild();
  Tensor rebuild_rows(const Rows& rows);
  bool others_claim() const;
  bool others_are_near() const;
  void keep_part(const Rows& rows, const Tensor& value);
  Content content_;
  Shape shape_;
  std::shared_ptr<SavedEntry> mask_;
  int claims_ = 0;
  mutable int expected_ = 0;          // how many nodes that run soon will ask for this
  mutable uint64_t expected_at_ = 0;  // the position of backward when these were counted
  std::optional<uint64_t> seq_;
  bool curved_ = false;
  int source_bits_ = 0;
  std::optional<Packing> packing_;
  Sizes sizes_;
};

// The rows that the recipe which runs on this thread is asked for; `of` is 0 where it is asked for
// all. For a recipe whose result depends on where in the tensor an element lies.
const Rows& rebuilt_rows();

// Null where nothing is kept.
const SavedEntry* entry_of(const SavedTensor& saved);

// Gives `tensor` the next SaveInfo::seq, for an op that may keep it and does not keep it this time.
// An op that saves the same bytes later takes this number. So the numbers of other tensors do not
// depend on what the first op decides. Does nothing for bytes that are kept already.
void number_unsaved(const Tensor& tensor);

}  // namespace frugal
