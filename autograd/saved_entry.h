// SavedEntry: one kept tensor, shared by all that saved it. Internal to autograd.
#pragma once
#include <variant>

#include "autograd/packed_parts.h"

namespace frugal {

// Backward comes to its next node: what entries expect is said anew.
void advance_backward();

// Always stands for a dense range of memory: unpack() gives a contiguous tensor of that range in
// memory order.
class SavedEntry {
 public:
  struct Raw {
    Tensor tensor;
    uint64_t version;
    const char* op;
  };
  // The producer's slots and how they give its output.
  struct Recipe {
    Slots sources;
    ReplayFn fn;
    Replay quality = Replay::none;
    int depth = 1;                       // recipes on the way, this one included
    int64_t elements = 0;                // of the tensors rebuilt on the way, without this one
    SaveInfo info;                       // of the decision, and
    const Codec* codec = nullptr;        // how a rebuilt tensor waits for its consumers; null: raw
    bool by_rows = false;                // rows of the sources give rows of the output
    std::vector<PackedPart> parts = {};  // what rebuilds by rows have left to wait so far, in order
  };
  struct SignOf {
    std::shared_ptr<Packed> packed;  // whose codes carry the mask
    int64_t items = 0;               // the leading extent of what they hold
  };
  using Content = std::variant<Raw, std::shared_ptr<Packed>, Recipe, SignOf>;

  // shape: of the kept tensor.
  SavedEntry(Content content, const Shape& shape) : content_(std::move(content)), shape_(shape) {}
  SavedEntry(const SavedEntry&) = delete;
  SavedEntry& operator=(const SavedEntry&) = delete;

  // A recipe that passes through an entry which others will ask for leaves it kept: nothing is
  // rebuilt twice.
  Tensor unpack();
  // Rows of it, contiguous. REQUIRES: has_rows(rows).
  Tensor unpack_rows(const Rows& rows);
  // The same of a bitmask, whose rows are those of its elements.
  Tensor unpack_mask_rows(const Rows& rows);
  bool has_rows(const Rows& rows) const;
  bool has_mask_rows(const Rows& rows) const;
  // Packed::run(), by `mask` unless null. False unless this is packed.
  bool run(PackedPass& pass, SavedEntry* mask) const;
  bool knows_variance() const;  // see SavedTensor
  Replay quality() const;
  // See SavedTensor. `seq`: of the policy's decision.
  void collect_sources(std::vector<uint64_t>& seqs) const;
  void set_seq(uint64_t seq) { seq_ = seq; }
  bool is_raw() const { return std::holds_alternative<Raw>(content_); }
  bool is_lossless() const { return is_raw() || std::holds_alternative<SignOf>(content_); }
  const Recipe* recipe() const { return std::get_if<Recipe>(&content_); }
  void replace(Content content) { content_ = std::move(content); }
  void prefetch() const;
  // One more of the nodes that are about to run asks for this.
  void expect() const;

  // Keeps the entry of the mask that these codes carry until its saver asks for it.
  void hold(std::shared_ptr<SavedEntry> mask) { mask_ = std::move(mask); }

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
  mutable int expected_ = 0;          // claims of the nodes about to run,
  mutable uint64_t expected_at_ = 0;  // as of when backward stood here
  std::optional<uint64_t> seq_;
};

}  // namespace frugal
